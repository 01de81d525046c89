"""The shop as a server of tools: `python shop_server.py` speaks the Model Context Protocol."""

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

ORDERS = {
    "T-1007": "delivered on Monday",
    "T-1042": "on its way and arrives on Friday",
}

server = MCPServer("shop", log_level="CRITICAL")


@server.tool()
def order_status(order: str) -> str:
    """Where an order is."""
    return f"Order {order} is {_known(order)}."


@server.tool()
def open_return(order: str) -> str:
    """Open a return for an order that was delivered."""
    if not _known(order).startswith("delivered"):
        raise ToolError(f"order {order} was not delivered yet")
    return f"R-{order.removeprefix('T-')} is your return."


def _known(order: str) -> str:
    if order not in ORDERS:
        raise ToolError(f"There is no order {order}.")
    return ORDERS[order]


if __name__ == "__main__":
    server.run("stdio")
