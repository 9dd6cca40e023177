"""How the WAL that the slot keeps is, for who is to be woken: as `run` has judged it last.

It has a subject of its own beside the source: a session that is idle in a transaction fills the disk while all commits
reach the log.
"""

from __future__ import annotations

from connectors.wal.budget import RANK
from operations.state.wal import Weighed
from operations.status.judgement import Judgement


def judge_wal(weighed: Weighed | None) -> Judgement:
    """From which level on somebody should know: the one that `run` calls an alarm. Pure.

    Args:
        weighed: what `run` has judged last; None when nobody has looked lately: then it is neither well nor bad.
    """
    if weighed is None:
        return Judgement("starting", "nobody has looked lately at the WAL that the slot keeps")
    if RANK[weighed.level] < RANK["alarm"]:
        return Judgement("well")
    remedy = "; ".join(weighed.held) or "see that the connector reads: `headwater status FILE`"
    return Judgement("behind", weighed.words, remedy)
