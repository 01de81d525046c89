"""What every embedder must do, whoever makes the vectors.

What every model must do, whoever answers.
"""

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
        """One whose service is away or refuses; None when there is no such thing."""
        raise NotImplementedError

    def test_it_has_a_name_and_is_known(self) -> None:
        """Specs call it by the one, indexes are kept by the other."""
        made = self.make_embedder()
        assert made.name, "an embedder has a name"
        assert made.known_by, "vectors are kept by who made them"

    def test_there_is_a_vector_of_one_length_for_every_text(self) -> None:
        """In their order: the first two lie nearer than the first and the last."""
        answer = _embedded(self.make_embedder(), TEXTS)
        one, near, far = answer.vectors
        assert len({len(vector) for vector in answer.vectors}) == 1, "vectors differ in length"
        assert _distance(one, near) < _distance(one, far), "what is alike does not lie near"
        assert answer.usage.calls >= 1, "a call counts"

    def test_the_same_text_has_the_same_vector_whatever_stands_beside_it(self) -> None:
        """An index is embedded in other company than a query."""
        made = self.make_embedder()
        together, alone = _embedded(made, TEXTS), _embedded(made, TEXTS[1:2])
        assert _distance(together.vectors[1], alone.vectors[0]) < 1e-4, "they differ"

    def test_no_texts_are_no_vectors(self) -> None:
        """And no call."""
        assert _embedded(self.make_embedder(), ()).vectors == ()

    def test_texts_cost_no_more_than_was_said_before(self) -> None:
        """Where it can tell."""
        made = self.make_embedder()
        worst = made.worst_usd(TEXTS)
        cost = _embedded(made, TEXTS).usage.usd
        assert worst is None or cost <= worst, f"${cost}, and ${worst} was the most"

    def test_what_goes_wrong_is_a_failure_with_a_culprit(self) -> None:
        """Never an exception."""
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
