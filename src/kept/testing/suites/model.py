"""What every model must do, whoever answers."""

import asyncio

from kept.core.model import Message, ModelReply, ModelRequest
from kept.core.ports import Model
from kept.core.rollout import Failure
from kept.models.pricing import worst_usd


class ModelSuite:
    """Subclass it and make models: one that answers, one that cannot."""

    def make_model(self) -> Model:
        """A model that answers."""
        raise NotImplementedError

    def make_failing_model(self) -> Model | None:
        """A model whose service is away or refuses; None when there is no such thing."""
        raise NotImplementedError

    def request(self) -> ModelRequest:
        """What it is asked."""
        return ModelRequest((Message("user", "say yes"),), temperature=0.0, max_tokens=5)

    def test_it_has_a_name(self) -> None:
        """Specs call it by that."""
        assert self.make_model().name, "a model has a name"

    def test_a_reply_says_what_it_cost(self) -> None:
        """At least the call itself."""
        reply = asyncio.run(self.make_model().complete(self.request()))
        assert isinstance(reply, ModelReply), f"not a reply: {reply}"
        assert reply.usage.calls >= 1, "a reply counts as a call"
        assert reply.usage.usd >= 0, "nobody is paid for asking"
        assert reply.finish, "a reply says why it ended"

    def test_a_reply_costs_no_more_than_was_said_before(self) -> None:
        """Where the model can tell: that much is set aside for it."""
        model = self.make_model()
        reply = asyncio.run(model.complete(self.request()))
        worst = worst_usd(model, self.request())
        if worst is not None:
            assert reply.usage.usd <= worst, f"${reply.usage.usd}, and ${worst} was the most"

    def test_what_goes_wrong_is_a_failure_with_a_culprit(self) -> None:
        """Never an exception and never an empty reply."""
        model = self.make_failing_model()
        if model is not None:
            failure = asyncio.run(model.complete(self.request()))
            assert isinstance(failure, Failure), f"not a failure: {failure}"
            assert failure.message, "a failure says what happened"

    def test_calls_side_by_side_are_all_answered(self) -> None:
        """In any order."""

        async def many() -> list[ModelReply | Failure]:
            model = self.make_model()
            return await asyncio.gather(*(model.complete(self.request()) for _ in range(4)))

        for reply in asyncio.run(many()):
            assert isinstance(reply, ModelReply), f"not a reply: {reply}"

    def test_cancelling_a_call_leaves_nothing_running(self) -> None:
        """A call that nobody waits for is not made."""

        async def cancelled() -> None:
            before = asyncio.all_tasks()
            task = asyncio.create_task(_complete(self.make_model(), self.request()))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            left = asyncio.all_tasks() - before
            assert not left, f"still running: {left}"

        asyncio.run(cancelled())


async def _complete(model: Model, request: ModelRequest) -> ModelReply | Failure:
    return await model.complete(request)
