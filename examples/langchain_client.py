"""LangChain's ChatOpenAI: plain, streamed, tools, structured replies, usage."""

import os

from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from openai import OpenAI
from pydantic import BaseModel

URL = os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:30000/v1")
KEY = os.environ.get("OPENAI_API_KEY", "none")
FRANCE = [SystemMessage("You are a helpful assistant."), HumanMessage("What is the capital of France?")]


class City(BaseModel):
    """A city."""

    name: str
    country: str


@tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


def main() -> None:
    with OpenAI(base_url=URL, api_key=KEY) as client:
        name = client.models.list().data[0].id
    model = ChatOpenAI(model=name, base_url=URL, api_key=KEY, temperature=0, max_tokens=100, stream_usage=True)

    reply = model.invoke(FRANCE)
    assert "Paris" in str(reply.content), reply
    assert reply.usage_metadata is not None
    print("plain:", reply.content, reply.usage_metadata)

    whole = None
    for chunk in model.stream(FRANCE):
        whole = chunk if whole is None else whole + chunk
    assert whole is not None
    assert "Paris" in str(whole.content), whole
    assert whole.usage_metadata is not None
    assert whole.usage_metadata["output_tokens"] > 1
    print("streamed:", whole.content)

    caller = model.bind_tools([get_weather], tool_choice="required", parallel_tool_calls=False)
    (call,) = caller.invoke([HumanMessage("What is the weather in Paris?")]).tool_calls
    assert call["name"] == "get_weather"
    assert isinstance(call["args"]["city"], str)
    print("forced call:", call["name"], call["args"], "->", get_weather.invoke(call["args"]))

    for method in ("json_schema", "function_calling"):
        city = model.with_structured_output(City, method=method).invoke(FRANCE)
        assert isinstance(city, City), city
        print(f"structured by {method}:", city)


if __name__ == "__main__":
    main()
