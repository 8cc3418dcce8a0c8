"""Models: messages in, completion out.

`client.py` asks a server: an `endpoint.py` (address, key, connections, limits) in a dialect (`openai.py`,
`anthropic.py`). `scripted/` is a server. `messages.py` is what they are sent, `base.py` what everybody else knows of
them.
"""

from deskroll.models.base import ContextTooLong, EndpointLoad, Model, ModelCall, ModelRefused
from deskroll.models.exact import InexactAnswer
from deskroll.models.messages import Message, ToolResult, tool_results
from deskroll.types import Sampling

__all__ = [
    "ContextTooLong",
    "EndpointLoad",
    "InexactAnswer",
    "Message",
    "Model",
    "ModelCall",
    "ModelRefused",
    "Sampling",
    "ToolResult",
    "tool_results",
]
