"""Stock outgrows an integer."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0003", "0002"


def upgrade() -> None:
    """Postgres writes the table anew for it."""
    op.alter_column("products", "stock", type_=sa.BigInteger(), existing_type=sa.Integer())


def downgrade() -> None:
    """Fails if a value does not fit any more."""
    op.alter_column("products", "stock", type_=sa.Integer(), existing_type=sa.BigInteger())
