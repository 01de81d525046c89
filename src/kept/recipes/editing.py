"""What a task without `proposers` means: a model that edits the artifacts directly."""

from kept.settings import model
from kept.spec.load import section
from kept.spec.models import ModelsSpec
from kept.spec.source import Source
from kept.spec.task import MutationSpec

_INSTEAD = "give `proposers`, as in --set 'proposers=[{kind: variants, files: [alternatives/*]}]'"


def check_proposers(source: Source) -> None:
    """Report a task that nothing proposes a change for."""
    if isinstance(source.data, dict) and source.data.get("proposers") is not None:  # pyright: ignore[reportUnknownMemberType] # any YAML
        return
    mutation = section(source, ("mutation",), MutationSpec)
    if mutation is None or mutation.mode is None:
        source.report(("proposers",), "missing", "without one nothing is ever proposed")
        return
    models = section(source, ("models",), ModelsSpec)
    spec = models.optimizer if models else None
    named = spec.name if spec else model()
    if named is None:
        hint = "name one in `models.optimizer` or in KEPT_MODEL, or give `proposers`"
        source.report(("mutation", "mode"), "`direct_edit` needs a model that edits", hint)
    else:
        message = f"`direct_edit` by `{named}`: this version of Kept does not call models yet"
        source.report(("mutation", "mode"), message, _INSTEAD)
