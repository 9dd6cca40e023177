"""Points for customers, and where an order came from."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0001", None


def upgrade() -> None:
    """One column that every row has at once, one that is empty."""
    op.add_column("customers", sa.Column("loyalty", sa.Integer(), nullable=False, server_default="1"))
    op.add_column("orders", sa.Column("channel", sa.Text()))


def downgrade() -> None:
    """Both go."""
    op.drop_column("orders", "channel")
    op.drop_column("customers", "loyalty")
