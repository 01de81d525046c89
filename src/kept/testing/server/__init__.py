"""A loopback server that replies like a model provider, from a script.

It speaks OpenAI chat completions, OpenAI responses, embeddings and Anthropic messages, streamed or
not, and can simulate faults as real services do. Clients of models and agent programs are
tested against it over real HTTP.
"""

from kept.testing.server.script import Fault, Seen
from kept.testing.server.serve import ModelServer

__all__ = ["Fault", "ModelServer", "Seen"]
