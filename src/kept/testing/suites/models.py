"""Conformance suites for embedders and models."""

import asyncio
from collections.abc import Sequence

from kept.core.llm import Embedded, Message, ModelReply, ModelRequest
from kept.core.ports import Embedder, Model
from kept.core.rollout import Failure
from kept.models.prices import worst_usd

TEXTS = ("how to return a parcel", "return a parcel", "boiling points of metals")


class EmbedderSuite:
    """Subclass it and make embedders: one that answers, one that cannot."""

    def make_embedder(self) -> Embedder:
        """An embedder that answers."""
        raise NotImplementedError

    def make_failing_embedder(self) -> Embedder | None:
        """An embedder whose service is down or refuses; None if that cannot happen."""
        raise NotImplementedError

    def test_it_has_a_name_and_is_known(self) -> None:
        """Specs use the name; indexes are stored under `known_by`."""
        made = self.make_embedder()
        assert made.name, "an embedder has a name"
        assert made.known_by, "vectors are kept by who made them"

    def test_there_is_a_vector_of_one_length_for_every_text(self) -> None:
        """Vectors are in order: the first two are nearer to each other than first and last."""
        answer = _embedded(self.make_embedder(), TEXTS)
        one, near, far = answer.vectors
        assert len({len(vector) for vector in answer.vectors}) == 1, "vectors differ in length"
        assert _distance(one, near) < _distance(one, far), "what is alike does not lie near"
        assert answer.usage.calls >= 1, "a call counts"

    def test_the_same_text_has_the_same_vector_whatever_stands_beside_it(self) -> None:
        """An index is embedded in other batches than a query."""
        made = self.make_embedder()
        together, alone = _embedded(made, TEXTS), _embedded(made, TEXTS[1:2])
        assert _distance(together.vectors[1], alone.vectors[0]) < 1e-4, "they differ"

    def test_no_texts_are_no_vectors(self) -> None:
        """No texts cause no call."""
        assert _embedded(self.make_embedder(), ()).vectors == ()

    def test_texts_cost_no_more_than_was_said_before(self) -> None:
        """The highest cost must hold, if it is known."""
        made = self.make_embedder()
        worst = made.worst_usd(TEXTS)
        cost = _embedded(made, TEXTS).usage.usd
        assert worst is None or cost <= worst, f"${cost}, and ${worst} was the most"

    def test_what_goes_wrong_is_a_failure_with_a_culprit(self) -> None:
        """Errors are returned as failures and never raised."""
        made = self.make_failing_embedder()
        if made is not None:
            failure = asyncio.run(_embed(made, TEXTS))
            assert isinstance(failure, Failure), f"not a failure: {failure}"
            assert failure.message, "a failure says what happened"


def _embedded(made: Embedder, texts: tuple[str, ...]) -> Embedded:
    answer = asyncio.run(_embed(made, texts))
    assert isinstance(answer, Embedded), f"no vectors: {answer}"
    return answer


async def _embed(made: Embedder, texts: tuple[str, ...]) -> Embedded | Failure:
    return await made.embed(texts)


def _distance(one: Sequence[float], other: Sequence[float]) -> float:
    return sum((x - y) ** 2 for x, y in zip(one, other, strict=True))


class ModelSuite:
    """Subclass it and make models: one that answers, one that cannot."""

    def make_model(self) -> Model:
        """A model that answers."""
        raise NotImplementedError

    def make_failing_model(self) -> Model | None:
        """A model whose service is down or refuses; None if that cannot happen."""
        raise NotImplementedError

    def request(self) -> ModelRequest:
        """Request for the models."""
        return ModelRequest((Message("user", "say yes"),), temperature=0.0, max_tokens=5)

    def test_it_has_a_name(self) -> None:
        """Specs use the name."""
        assert self.make_model().name, "a model has a name"

    def test_a_reply_says_what_it_cost(self) -> None:
        """A reply counts at least one call."""
        reply = asyncio.run(self.make_model().complete(self.request()))
        assert isinstance(reply, ModelReply), f"not a reply: {reply}"
        assert reply.usage.calls >= 1, "a reply counts as a call"
        assert reply.usage.usd >= 0, "nobody is paid for asking"
        assert reply.finish, "a reply says why it ended"

    def test_a_reply_costs_no_more_than_was_said_before(self) -> None:
        """The highest cost must hold, if it is known: that much budget is reserved."""
        model = self.make_model()
        reply = asyncio.run(model.complete(self.request()))
        worst = worst_usd(model, self.request())
        if worst is not None:
            assert reply.usage.usd <= worst, f"${reply.usage.usd}, and ${worst} was the most"

    def test_what_goes_wrong_is_a_failure_with_a_culprit(self) -> None:
        """Errors are returned as failures, never raised, and never an empty reply."""
        model = self.make_failing_model()
        if model is not None:
            failure = asyncio.run(model.complete(self.request()))
            assert isinstance(failure, Failure), f"not a failure: {failure}"
            assert failure.message, "a failure says what happened"

    def test_calls_side_by_side_are_all_answered(self) -> None:
        """Concurrent calls are all answered, in any order."""

        async def many() -> list[ModelReply | Failure]:
            model = self.make_model()
            return await asyncio.gather(*(model.complete(self.request()) for _ in range(4)))

        for reply in asyncio.run(many()):
            assert isinstance(reply, ModelReply), f"not a reply: {reply}"

    def test_cancelling_a_call_leaves_nothing_running(self) -> None:
        """Cancelling a call leaves no task behind."""

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
