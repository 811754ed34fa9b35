import kill_corpus


def test_a_killed_build_ends_with_the_same_bytes():
    found = kill_corpus.test(kills=2, copies=3, seed=1)
    assert found["kills"] == 2
