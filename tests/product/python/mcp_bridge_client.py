"""Talks to mcp-server-time behind the bridge with the MCP project's own SDK for Python.

Usage: mcp_bridge_client.py URL
"""

import asyncio
import json
import sys

from mcp import Client


async def session(url: str, mode: str) -> None:
    """Lists and calls the server's tools, several calls at once."""
    async with Client(url, mode=mode) as client:
        tools = sorted(tool.name for tool in (await client.list_tools()).tools)
        assert tools == ["convert_time", "get_current_time"], tools
        zones = ["Europe/Paris", "Asia/Tokyo", "America/New_York", "UTC"]
        results = await asyncio.gather(
            *(client.call_tool("get_current_time", {"timezone": zone}) for zone in zones)
        )
        told = [json.loads(result.content[0].text)["timezone"] for result in results]
        assert told == zones, told
        wrong = await client.call_tool("get_current_time", {"timezone": "Nowhere/Land"})
        assert wrong.is_error, wrong


async def main(url: str) -> None:
    """Both generations of the protocol, and two clients at once."""
    await asyncio.gather(session(url, "auto"), session(url, "legacy"))
    print("ok")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
