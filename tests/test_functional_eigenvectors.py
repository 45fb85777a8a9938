import pytest
import torch

from secondsight.functional.pooling.eigenvectors import eigh


@pytest.fixture
def gives_up(monkeypatch):
    def fails(a):
        raise torch.linalg.LinAlgError("linalg.eigh: the algorithm failed to converge")

    monkeypatch.setattr(torch.linalg, "eigh", fails)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_where_torch_gives_up_a_matrix_of_low_rank_still_has_its_eigenvectors(gives_up, dtype):
    x = torch.randn(3, 2, 40, dtype=dtype)
    a = x.mT @ x
    values, vectors = eigh(a)
    assert values.dtype == vectors.dtype == dtype
    torch.testing.assert_close((vectors * values[:, None]) @ vectors.mT, a, atol=1e-4, rtol=1e-4)
    assert (values.diff(dim=-1) >= 0).all()


def test_what_is_no_number_has_none(gives_up):
    with pytest.raises(torch.linalg.LinAlgError):
        eigh(torch.full((2, 2), torch.nan))
