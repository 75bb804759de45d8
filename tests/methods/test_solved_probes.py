"""GDA, ProKeR and prototypes, which nothing trains, against their equations."""

import numpy as np
import pytest
import torch
from plain_features import (
    CLASSES,
    PAIR,
    assert_close,
    logits_of,
    make,
    plain_text,
    plain_views,
    prepared,
    several_views,
    unit,
)
from written_out_clip import NAMES, FixedSupport, fixed_passes, fixed_support, pictures

from shotfit.errors import DataError, UsageError
from shotfit.methods import get_method
from shotfit.methods.gda import GDA


def centred(logits):
    """What tells classes apart: a number that all share may be large and says nothing."""
    return logits - logits.mean(dim=1, keepdim=True)


def numpy_gaussian(features, labels, precision):
    """(W, b) of the official few lines, in float64."""
    means = np.stack([features[labels == c].mean(0) for c in range(CLASSES)])
    weight = precision @ means.T
    bias = np.log(1 / CLASSES) - np.einsum("nd,dc,nc->n", means, precision, means) / 2
    return means, weight, bias


def numpy_ridge(residuals):
    covariance = np.cov(residuals.T)
    count, dim = residuals.shape
    ridged = (count - 1) * covariance + np.trace(covariance) * np.eye(dim)
    return dim * np.linalg.pinv(ridged)


def test_gda_matches_its_equation():
    clip, features, labels = plain_views(4)
    x, y = features.double().numpy(), labels.numpy()
    residuals = np.concatenate([x[y == c] - x[y == c].mean(0) for c in range(CLASSES)])
    means, weight, bias = numpy_gaussian(x, y, numpy_ridge(residuals))
    f = unit(clip.images(pictures()))
    gaussian = torch.from_numpy(f.double().numpy() @ weight + bias)
    expected = clip.scale * f @ plain_text(clip).T + 10 * gaussian
    method = prepared("gda", passes=4, templates=PAIR)
    ours = logits_of(method, pictures())
    assert_close(ours, expected)
    assert_close(centred(ours), centred(expected), 1e-3)
    turned = logits_of(method, pictures(), NAMES[::-1])
    assert_close(turned, ours.flip(1))
    assert centred(10 * gaussian).abs().max() > 1, "the Gaussians must count here"


def test_gda_gives_a_name_without_images_the_mean_of_all_gaussians():
    clip, features, labels = plain_views(4)
    x, y = features.double().numpy(), labels.numpy()
    residuals = np.concatenate([x[y == c] - x[y == c].mean(0) for c in range(CLASSES)])
    precision = numpy_ridge(residuals)
    means, _, _ = numpy_gaussian(x, y, precision)
    middle = means.mean(0)
    f = unit(clip.images(pictures()))
    evidence = f.double().numpy() @ precision @ middle + np.log(1 / CLASSES)
    evidence = torch.from_numpy(evidence - middle @ precision @ middle / 2)
    text = clip.scale * f @ plain_text(clip, ("violet", "red")).T
    method = prepared("gda", passes=4, templates=PAIR)
    ours = logits_of(method, pictures(), ("violet", "red"))
    assert_close(ours[:, 0], text[:, 0] + 10 * evidence)
    assert_close(ours[:, 1], logits_of(method, pictures())[:, 0])
    novel = logits_of(method, pictures(), ("violet", "orange")).softmax(-1)
    alone = make("zero_shot")
    alone.template = PAIR[0]
    single = prepared("gda", passes=4)
    novel = logits_of(single, pictures(), ("violet", "orange")).softmax(-1)
    assert_close(novel, logits_of(alone, pictures(), ("violet", "orange")).softmax(-1), 1e-3)


def test_gda_base_to_novel_matches_its_equations():
    """72 features for 40 dimensions: the covariance has full rank, and 64 are some of them."""
    clip, features, labels = plain_views(12)
    x, y = features.double().numpy(), labels.numpy()
    covariance = np.mean([np.cov(x[y == c].T) for c in range(CLASSES)], axis=0)
    precision = np.linalg.pinv(covariance, rcond=40 * np.finfo(np.float32).eps)
    _, weight, bias = numpy_gaussian(x, y, precision)
    f = unit(clip.images(pictures())).double()
    method = prepared(
        "gda", several_views(12), estimator="base_to_novel", alpha=0.1, passes=12, templates=PAIR
    )
    expected = clip.scale * f @ plain_text(clip).double().T
    expected = expected + 0.1 * torch.from_numpy(f.numpy() @ weight + bias)
    ours = logits_of(method, pictures())
    assert_close(ours, expected)
    assert_close(centred(ours), centred(expected), 2e-3)
    novel = ("violet", "orange")
    text = plain_text(clip, novel)
    means, precisions = [], []
    for t in text:
        near = x[np.argsort(-(features @ t).numpy())[:64]]
        t = t.double().numpy()
        means.append(np.concatenate([near, np.repeat(t[None], 16, 0)]).mean(0))
        own = (near - t).T @ (near - t) / 63
        precisions.append(40 * np.linalg.pinv(63 * own + np.trace(own) * np.eye(40)))
    shared, means = np.mean(precisions, axis=0), np.stack(means)
    bias = -np.einsum("nd,dc,nc->n", means, shared, means) / 2
    evidence = torch.from_numpy(f.numpy() @ shared @ means.T + bias)
    expected = clip.scale * f @ text.double().T + 0.1 * evidence
    assert_close(centred(logits_of(method, pictures(), novel)), centred(expected), 1e-3)


def test_gda_with_fewer_features_than_neighbours_takes_all_of_them():
    method = prepared("gda", several_views(2), estimator="base_to_novel", passes=2)
    assert len(method.get_buffer("features")) == 12
    assert logits_of(method, pictures(), ("violet", "orange")).isfinite().all()


def test_gda_searches_alpha_only_where_that_is_asked_for():
    validation = FixedSupport(fixed_passes(size=24)[3:])
    kept = prepared("gda", passes=4)
    kept.finish(several_views(), validation)
    assert (float(kept.get_buffer("alpha")), kept.selects_on) == (10, "nothing")
    method = prepared("gda", passes=4, search=True)
    method.finish(several_views(), None)
    assert (float(method.get_buffer("alpha")), method.selects_on) == (10, "nothing")
    hits = {}
    for alpha in (1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0):
        method.get_buffer("alpha").fill_(alpha)
        found = logits_of(method, validation.made[0][0]).argmax(1)
        hits[alpha] = int((found == validation.labels).sum())
    method.finish(several_views(), validation)
    best = min(alpha for alpha, count in hits.items() if count == max(hits.values()))
    assert float(method.get_buffer("alpha")) == pytest.approx(best)
    assert method.selects_on == "validation shots"
    assert len(set(hits.values())) > 1, "a search among equals shows nothing"


def test_gda_encodes_no_more_often_than_gives_a_class_its_views():
    config = get_method("gda").Config(views_per_class=16)
    passes = [config.passes_over(24 * shots, 24) for shots in (1, 2, 3, 4, 8, 16, 32)]
    assert passes == [10, 8, 6, 4, 2, 1, 1]
    images = len(fixed_support())
    support = fixed_support()
    for passes in (1, 3):
        method = prepared("gda", support, views_per_class=passes * images // CLASSES)
        assert isinstance(method, GDA) and len(method.views) == passes
        # The first is the image itself.
        with torch.no_grad():
            assert torch.equal(method.views[0], method.encode_pass(support.plain()))
        assert "views" not in method.learned_state()
    often = prepared("gda", passes=4)
    assert isinstance(often, GDA) and len(often.views) == 4


@pytest.mark.parametrize("estimator", ["few_shot", "base_to_novel"])
def test_gda_says_when_there_is_no_covariance(estimator):
    with pytest.raises(DataError, match="more passes"):
        prepared("gda", fixed_support(size=3), passes=1, estimator=estimator)


def test_proker_matches_its_equation():
    clip, features, labels = plain_views(4)
    beta, ridge = 2.5, 0.2
    s, t = features.double().numpy(), plain_text(clip).double().numpy()
    f = unit(clip.images(pictures())).double().numpy()
    kernel = np.exp(-beta * (1 - s @ s.T))
    target = np.eye(CLASSES)[labels.numpy()] - s @ t.T
    dual = np.linalg.solve(kernel / ridge + np.eye(len(s)), target)
    correction = np.exp(-beta * (1 - f @ s.T)) @ dual
    textbook = np.exp(-beta * (1 - f @ s.T)) @ np.linalg.solve(
        kernel + ridge * np.eye(len(s)), target
    )
    assert np.allclose(correction, ridge * textbook)
    expected = float(clip.scale) * torch.from_numpy(f @ t.T + correction)
    method = prepared("proker", beta=beta, ridge=ridge, passes=4, templates=PAIR)
    assert_close(logits_of(method, pictures()), expected)
    assert_close(logits_of(method, pictures(), NAMES[::-1]), expected.flip(1))
    mixed = logits_of(method, pictures(), ("violet", "blue"))
    cosine = clip.scale * unit(clip.images(pictures())) @ plain_text(clip, ("violet",)).T
    assert_close(mixed[:, :1], cosine)
    assert_close(mixed[:, 1].double(), expected[:, 2])


def test_proker_refuses_a_system_that_does_not_fit(monkeypatch):
    monkeypatch.setattr("shotfit.methods.proker.free_memory_bytes", lambda device: 16 * 24**2)
    prepared("proker", passes=4)
    with pytest.raises(UsageError, match="30 rows.* fewer passes"):
        prepared("proker", passes=5)


@pytest.mark.parametrize("passes", [0, 3])
def test_prototypes_match_their_equation(passes):
    method = prepared("prototypes", weight=0.7, passes=passes, templates=PAIR)
    clip, features, labels = plain_views(max(1, passes))
    features = features.view(max(1, passes), 6, -1).mean(0)
    prototypes = unit(torch.stack([features[labels[:6] == c].mean(0) for c in range(CLASSES)]))
    f, text = unit(clip.images(pictures())), plain_text(clip)
    expected = clip.scale * f @ (text + 0.7 * (prototypes - prototypes.mean(0))).T
    assert_close(logits_of(method, pictures()), expected)
    # Among classes with images, the published blend without the centre, up to a number an image.
    blend = clip.scale * f @ (text + 0.7 * prototypes).T
    assert_close(centred(logits_of(method, pictures())), centred(blend))
    mixed = logits_of(method, pictures(), ("violet", "blue"))
    assert_close(mixed[:, :1], clip.scale * f @ plain_text(clip, ("violet",)).T)
    assert_close(mixed[:, 1], expected[:, 2])
    none = prepared("prototypes", weight=0.0)
    assert_close(logits_of(none, pictures()), logits_of(make("zero_shot"), pictures()))
