"""Models: messages in, completion out.

`client.py` asks an OpenAI-compatible server, `scripted.py` is one; `messages.py` is what they are sent, `base.py` what
everybody else knows of them.
"""

from deskroll.models.base import ContextTooLong, EndpointLoad, Model, ModelRefused
from deskroll.models.messages import Message, ToolResult, tool_results

__all__ = ["ContextTooLong", "EndpointLoad", "Message", "Model", "ModelRefused", "ToolResult", "tool_results"]
