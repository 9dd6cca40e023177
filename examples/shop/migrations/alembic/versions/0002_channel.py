"""The new column gets its values and a better name, in one transaction."""

from alembic import op

revision, down_revision = "0002", "0001"


def upgrade() -> None:
    """Rows are changed before the rename and after it."""
    op.execute("UPDATE orders SET channel = 'web' WHERE order_id % 2 = 0")
    op.alter_column("orders", "channel", new_column_name="sales_channel")
    op.execute("UPDATE orders SET sales_channel = 'shop' WHERE order_id % 3 = 0")
    op.create_index("orders_channel", "orders", ["sales_channel"])


def downgrade() -> None:
    """The name goes back; the values stay."""
    op.drop_index("orders_channel", "orders")
    op.alter_column("orders", "sales_channel", new_column_name="channel")
