"""Writing text: how the next token is chosen, and beam search."""

from collections.abc import Callable, Collection, Sequence

from weft.theory.written.learning import softmax

Beam = tuple[float, tuple[int, ...]]  # log-probability, tokens


def most_probable(z: Sequence[float]) -> int:
    return max(range(len(z)), key=lambda v: z[v])


def with_temperature(z: Sequence[float], tau: float) -> list[float]:
    return softmax([z_v / tau for z_v in z])


def by_rank(p: Sequence[float]) -> list[int]:
    """The tokens, most probable first."""
    return sorted(range(len(p)), key=lambda v: -p[v])


def top_k_set(p: Sequence[float], k: int) -> set[int]:
    return set(by_rank(p)[:k])


def nucleus(p: Sequence[float], P: float) -> set[int]:
    r = by_rank(p)
    return {r[i] for i in range(len(r)) if i == 0 or sum(p[r[j]] for j in range(i)) < P}


def renormalized(p: Sequence[float], S: Collection[int]) -> list[float]:
    return [p[v] / sum(p[s] for s in S) if v in S else 0.0 for v in range(len(p))]


def drawn_token(p: Sequence[float], u: float) -> int:
    return next(v for v in range(len(p)) if sum(p[: v + 1]) > u * sum(p))


def repetition_penalized(z: Sequence[float], seen: Collection[int], theta: float) -> list[float]:
    penalized = [z_v / theta if z_v > 0 else z_v * theta for z_v in z]
    return [penalized[v] if v in seen else z[v] for v in range(len(z))]


def extended_beams(beams: Sequence[Beam], log_p: Callable[[tuple[int, ...]], Sequence[float]]) -> list[Beam]:
    """Every beam with every next token, best first."""
    longer = [(s + l_v, (*w, v)) for s, w in beams for v, l_v in enumerate(log_p(w))]
    return sorted(longer, key=lambda beam: -beam[0])


def going_on(extended: Sequence[Beam], B: int, ends: Callable[[tuple[int, ...]], bool]) -> list[Beam]:
    return [(s, w) for s, w in extended if not ends(w)][:B]


def length_score(s: float, n: int, a: float) -> float:
    return s / n**a


def finished_beams(extended: Sequence[Beam], B: int, a: float, ends: Callable[[tuple[int, ...]], bool]) -> list[Beam]:
    return [(length_score(s, len(w), a), w) for s, w in extended[:B] if ends(w)]


def cannot_improve(s: float, m: int, a: float, finished: Sequence[float], B: int) -> bool:
    """`s`: log-probability of the best beam that goes on. `finished`: the scores of the best finished texts."""
    return len(finished) == B and length_score(s, m, a) <= min(finished)
