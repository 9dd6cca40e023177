"""Names of what this example makes, so that headwater's and the hand-written stores can't be mixed up."""

DATABASE = "dual_writes"
OWNER = "dual_writes_owner"
BY_HAND_INDEX = "dual_writes_by_hand"
BY_HAND_PREFIX = "dual_writes_by_hand:product:"
HEADWATER_INDEX = "dual_writes"
HEADWATER_PREFIX = "dual_writes:product:"
