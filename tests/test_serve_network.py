"""What runs the network: the same vectors whoever computes them, and everything that waits is computed."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

pytest.importorskip("fastapi")

from secondsight.inference.exported import Exported
from secondsight.inference.onnx_file import write
from secondsight.serve.network import NetworkQueue
from secondsight.serve.one_dnn import OneDnn
from secondsight.serve.own_model import OwnModel
from secondsight.serve.shared_cores import SharedCores
from serve_pictures import pixels, serve_model

PICTURES = [np.asarray(pixels(seed)) for seed in range(6)]


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@torch.no_grad()
def test_one_dnn_gives_the_features_that_torch_gives(threads):
    torch.set_num_threads(1)
    model = serve_model()
    images = torch.stack([model.transform(picture) for picture in PICTURES])
    plain = model.backbone(images)
    with OneDnn():
        torch.testing.assert_close(model.backbone(images), plain, rtol=1e-4, atol=1e-4)
        strange = torch.nn.Conv2d(3, 2, 1, padding="same", dtype=torch.float64)  # left to torch
        assert strange(torch.zeros(1, 3, 4, 4, dtype=torch.float64)).shape == (1, 2, 4, 4)


def test_several_workers_give_the_vectors_of_one(threads):
    torch.set_num_threads(2)
    queue = OwnModel(serve_model(), batch=4)
    assert (queue.workers, queue.cores) == (2, 1)
    alone = [queue.run([picture], ["a"])[0].vector for picture in PICTURES]
    together = [future.result(60) for future in [queue.submit(p, "a") for p in PICTURES * 3]]
    for number, one in enumerate(together):
        np.testing.assert_allclose(one.vector, alone[number % len(alone)], atol=1e-5)
    assert queue.pictures == 18
    queue.close()


def test_a_second_model_and_other_threads_have_as_many_cores_as_before(threads):
    torch.set_num_threads(4)
    queues, cores = [], []
    for work in (
        lambda: queues.append(OwnModel(serve_model(), batch=4)),
        lambda: queues.append(OwnModel(serve_model(), batch=4)),
        lambda: cores.append(torch.get_num_threads()),
    ):
        thread = threading.Thread(target=work)  # one that has not met torch
        thread.start()
        thread.join()
        for queue in queues:  # its workers have begun
            for future in [queue.submit(p, "a") for p in PICTURES * 3]:
                future.result(60)
    assert [(queue.workers, queue.cores) for queue in queues] == [(4, 1), (4, 1)]
    assert cores == [4]
    for queue in queues:
        queue.close()


def test_a_worker_takes_its_share_of_what_waits_and_leaves_the_rest_to_the_others():
    queue = NetworkQueue(batch=16, workers=0)  # nobody works
    for _ in range(8):
        queue.submit(PICTURES[0], "a")
    queue.workers = 2
    assert [len(queue._gathered()[0]) for _ in range(4)] == [4, 2, 1, 1]


def test_an_exported_file_has_all_cores_for_a_picture_alone_and_a_share_for_batches(tmp_path):
    pytest.importorskip("onnxruntime")
    model = serve_model()
    write(model, tmp_path / "model.onnx")
    cores = SharedCores(Exported(tmp_path / "model.onnx", threads=2))
    assert cores.workers == 2
    images = np.stack([model.transform(picture).numpy() for picture in PICTURES])
    whole, share, ran = cores.whole, cores.share, []
    expected = whole(images)
    inside, go_on = threading.Event(), threading.Event()

    def slow(some):
        ran.append(len(some))
        if len(some) > 1:
            inside.set()
            assert go_on.wait(60)
        return share(some)

    cores.whole = lambda one: ran.append("whole") or whole(one)
    cores.share = slow
    np.testing.assert_allclose(cores(images[:1]), expected[:1], atol=1e-5)
    with ThreadPoolExecutor(1) as thread:
        batch = thread.submit(cores, images[1:])
        assert inside.wait(60)
        np.testing.assert_allclose(cores(images[:1]), expected[:1], atol=1e-5)  # not alone now
        go_on.set()
        np.testing.assert_allclose(batch.result(60), expected[1:], atol=1e-5)
    np.testing.assert_allclose(cores(images[:1]), expected[:1], atol=1e-5)
    assert ran == ["whole", 5, 1, "whole"]


def test_an_exported_runtime_may_have_more_cores_than_torch_and_the_system_need_not_say_how_many(
    threads, tmp_path, monkeypatch
):
    pytest.importorskip("onnxruntime")
    torch.set_num_threads(1)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    model = serve_model()
    write(model, tmp_path / "model.onnx")
    assert SharedCores(Exported(tmp_path / "model.onnx", threads=0)).workers == min(4, os.cpu_count() or 1)

    def run(images):
        raise AssertionError("the exported file runs")

    run.exported = Exported(tmp_path / "model.onnx", threads=2)
    queue = OwnModel(model, batch=4, runtime=run)
    assert (queue.workers, queue.cores) == (2, 1)
    assert queue.submit(PICTURES[0], "a").result(60).vector.shape == (model.dim,)
    queue.close()
