"""Calls the tool of `tools.rs` that takes and returns Pydantic models.

Usage: mcp_models_client.py URL
"""

import asyncio
import sys

from mcp import Client


async def main(url: str) -> None:
    """Schemas, a result that the SDK checks against its own, and a refusal in Pydantic's words."""
    async with Client(url) as client:
        [tool] = (await client.list_tools()).tools
        item = tool.input_schema["properties"]["lines"]["items"]
        assert item["properties"]["name"]["description"] == "What is bought.", item
        discount = tool.input_schema["properties"]["discount"]
        assert (discount["maximum"], discount["description"]) == (1, "A part."), discount
        assert "$ref" not in str(tool.input_schema), tool.input_schema
        assert sorted(tool.output_schema["properties"]) == ["lines", "total"], tool.output_schema

        lines = [{"name": "tea", "price": 3}, {"name": "cake", "price": 5}]
        result = await client.call_tool("bill", {"lines": lines, "discount": 0.5})
        assert not result.is_error and result.structured_content["total"] == 4, result
        result = await client.call_tool("bill", {"lines": [{"name": "tea", "price": -1}]})
        assert result.is_error and "greater than or equal to 0" in result.content[0].text, result
    print("ok")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
