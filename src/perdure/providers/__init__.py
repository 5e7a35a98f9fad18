"""Models that answer over the network, one provider's API a module, and how a model is named in a word.

Parts that only compute (`openai_request`, `openai_stream`, `openai_errors`, `sse`, `retry_after`) know no network; the
edge is `openai_chat`.
"""

from __future__ import annotations

from perdure.errors import ConfigurationError
from perdure.models import Model
from perdure.providers.openai_chat import OpenAIChatModel

__all__ = ["OpenAIChatModel", "resolve_model"]


def resolve_model(model: Model | str) -> Model:
    """Return the model that an agent names: a model itself, or `openai:NAME`.

    Raises:
        ConfigurationError: it is neither.
    """
    match model:
        case str():
            provider, _, name = model.partition(":")
            if provider == "openai" and name.strip():
                return OpenAIChatModel(name.strip())
        case Model():
            return model
    msg = f"{model!r} names no model; give 'openai:NAME', such as 'openai:gpt-5-mini', or an object with `complete`"
    raise ConfigurationError(msg)
