"""The pytest plugin: kernels run, are checked and timed in tests, on one chip or several.

    def test_softmax(nki_simulate, nki_check, nki_estimate):
        x = np.random.rand(128, 512).astype(np.float32)
        np.testing.assert_allclose(nki_simulate(softmax, x), reference(x), rtol=1e-5)
        nki_check(softmax, x)
        assert nki_estimate(softmax, x).latency_us < 30

    @pytest.mark.nki_budget(latency_us=30, mbu=0.2)     every kernel that the test launches or estimates
    @pytest.mark.nki_check                              every kernel that the test launches
    def test_softmax(): ...

    pytest --nki-target trn1,trn2       once per chip, where a test uses a fixture of these
    pytest --nki-check                  every kernel of every test

Where nkilab is installed pytest finds it; else `-p nkilab.suites.plugin`. It serves the names `nki` and
`neuronxcc` where nobody else does, when they are first imported; nothing of nkilab is loaded before.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from types import TracebackType
from typing import Any

import pytest

from .._lazy import part
from . import budgets

MARKER = "nki_check(replay=0): check every kernel that the test launches"


def checked(
    kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, replay: int, target: str
) -> Sequence[Any]:
    """The findings of a kernel on arrays or specs; fails the test on them; advice does not count."""
    checking = part("checking")
    report = checking.report_of(kernel, args, kwargs, checking.Options(target, replay))
    _fail_on([report])
    findings: Sequence[object] = report.findings
    return findings


@contextmanager
def every_launch(replay: int = 0) -> Generator[None, Any, Any]:
    """Check what is launched in a block, and fail the test at its end; advice is not looked for."""
    checking = part("checking")
    with checking.every_launch(checking.Options(replays=replay, is_advised=False)) as reports:
        yield
    _fail_on(reports)


def _fail_on(reports: list[Any]) -> None:
    """Fail the test with the text of findings, if some fail."""
    checking = part("checking")
    if checking.status_of(reports):
        text = part("checks.terminal").text_of
        text_of_findings = "\n\n".join(filter(None, map(text, checking.merged(reports))))
        pytest.fail(
            f"nkilab check: {part('checks.report').summary_line(reports)}\n\n{text_of_findings}",
            pytrace=False,
        )


_PREDICTIONS = pytest.StashKey[budgets.Predictions]()
_FIXTURES = ("nki_target", "nki_simulate", "nki_check", "nki_estimate")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options."""
    group = parser.getgroup("nkilab")
    group.addoption(
        "--nki-target", metavar="CHIP[,...]", default="",
        help="chips that tests with fixtures of nkilab run on: trn1, trn2, trn3 or a machine file",
    )  # fmt: skip
    group.addoption("--nki-version", metavar="VERSION", default="", help="NKI version to hold kernels to")
    group.addoption(
        "--nki-check", action="store_true", help="fail tests whose kernels have findings of `nkilab check`"
    )
    parser.addini(
        "nki_serve", "serve the names nki and neuronxcc where nobody else does", "bool", default=True
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers and serve the names."""
    config.addinivalue_line("markers", MARKER)
    config.addinivalue_line("markers", budgets.MARKER)
    version = config.getoption("--nki-version")
    _check_options(version, targets_of(config))
    if version:
        os.environ["NKILAB_NKI"] = version
    if config.getoption("fulltrace"):
        os.environ["NKILAB_FULL_TRACE"] = "1"
    is_served = any(type(finder).__module__.startswith("nkilab.") for finder in sys.meta_path)
    if config.getini("nki_serve") and not is_served:
        import_module("nkilab.autostart")


def _check_options(version: str, targets: list[str]) -> None:
    """Refuse versions and chips that do not exist, before anything runs."""
    if not version and not targets:
        return
    try:
        if version:
            part("dialects.versions").version_named(version)
        for target in targets:
            part("machine").machine_named(target)
    except part("errors").NkilabError as error:
        raise pytest.UsageError(str(error)) from None


def targets_of(config: pytest.Config) -> list[str]:
    """The chips of --nki-target."""
    return [word.strip() for word in config.getoption("--nki-target").split(",") if word.strip()]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that uses a fixture of ours once per chip, where several are named."""
    targets = targets_of(metafunc.config)
    if len(targets) > 1 and not set(_FIXTURES).isdisjoint(metafunc.fixturenames):
        own = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize") if mark.args]
        if not any("nki_target" in (a.replace(" ", "").split(",") if isinstance(a, str) else a) for a in own):
            metafunc.parametrize("nki_target", targets, indirect=True)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Refuse budgets that say nothing: their tests fail, and others run."""
    wrong = ""
    try:
        budgets.budgets_of(item)
    except pytest.UsageError as error:
        wrong = str(error)
    if wrong:
        pytest.fail(wrong, pytrace=False)


@pytest.fixture
def nki_target(request: pytest.FixtureRequest) -> str:
    """The chip that this test's kernels run on; "" for the kernel's own, the environment's or trn2."""
    targets = targets_of(request.config)
    return str(getattr(request, "param", targets[0] if targets else ""))


@pytest.fixture
def nki_simulate(nki_target: str) -> Callable[..., Any]:
    """Run a kernel on arrays and return its results: nki_simulate(kernel, *args, **kwargs)."""

    def run(kernel: Any, *args: Any, target: str = "", **kwargs: Any) -> Any:
        api = part("api")
        with api.chosen(target=target or nki_target or api.settings().target):
            return api.simulate(kernel)(*args, **kwargs)

    return run


@pytest.fixture
def nki_check(nki_target: str) -> Callable[..., Sequence[Any]]:
    """Check a kernel on arrays or specs; fails the test on findings; advice does not count.

    Returns:
        The findings, advice among them.
    """

    def held_to_the_checks(
        kernel: Any, *args: Any, replay: int = 0, target: str = "", **kwargs: Any
    ) -> Sequence[Any]:
        chip = target or nki_target
        return checked(kernel, args, kwargs, replay=replay, target=chip)

    return held_to_the_checks


@pytest.fixture
def nki_estimate(request: pytest.FixtureRequest, nki_target: str) -> Callable[..., Any]:
    """Predict the latency of a kernel on arrays or specs; returns an Estimate."""
    predictions = request.node.stash.setdefault(_PREDICTIONS, budgets.Predictions())

    def predicted(kernel: Any, *args: Any, target: str = "", **kwargs: Any) -> Any:
        estimate_made = part("api").estimate(kernel, *args, target=target or nki_target, **kwargs)
        predictions.note(estimate_made)
        return estimate_made

    return predicted


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Check and time what a test launches, where a marker or an option asks for it, on the chip asked for."""
    marker = item.get_closest_marker("nki_check")
    allowed = budgets.budgets_of(item)
    targets = targets_of(item.config)
    only_target = targets[0] if len(targets) == 1 else ""
    target = str(getattr(item, "funcargs", {}).get("nki_target", only_target))
    if marker is None and not allowed and not target and not item.config.getoption("--nki-check"):
        return (yield)
    with ExitStack() as stack:
        if target:
            stack.enter_context(part("api").chosen(target=target))
        if marker is not None or item.config.getoption("--nki-check"):
            stack.enter_context(every_launch(**(marker.kwargs if marker is not None else {})))
        if allowed:
            predictions = item.stash.setdefault(_PREDICTIONS, budgets.Predictions())
            stack.enter_context(budgets.watched(predictions))
        outcome = yield
    if allowed:
        budgets.fail_over(allowed, predictions.rows)
    return outcome


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Put what a test predicted into its report, for the summary and for JUnit; errors show users' lines."""
    _leave_out_ours(item, call)
    predictions = item.stash.get(_PREDICTIONS, None)
    if predictions is None or call.when != "call":
        return (yield)
    for one in predictions.rows:
        item.user_properties.extend(budgets.properties_of(one))
    report = yield
    report.nki_predictions = predictions.rows
    return report


def _leave_out_ours(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Show of an error of nkilab the frames of the user alone, unless --full-trace asks for all."""
    errors = sys.modules.get("nkilab.errors")
    if errors is None or call.excinfo is None or item.config.getoption("fulltrace"):
        return
    error = call.excinfo.value
    if not isinstance(error, errors.NkilabError):
        return
    entry: TracebackType | None = call.excinfo.tb
    entries = []
    while entry is not None:
        entries.append(entry)
        entry = entry.tb_next
    shown = None
    for entry in reversed(entries):
        if part("trace.source").is_named(entry.tb_frame.f_code):
            shown = TracebackType(shown, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    if shown is not None:
        call.excinfo = pytest.ExceptionInfo.from_exc_info((type(error), error, shown))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """List what tests predicted, in the order of the tests."""
    lines = [
        f"{budgets.headline(one)}  {report.nodeid}"
        for reports in terminalreporter.stats.values()
        for report in reports
        for one in getattr(report, "nki_predictions", ())
    ]
    if lines:
        terminalreporter.section("nkilab: predicted latencies")
        for line in sorted(lines, key=lambda line: line.rpartition("  ")[2]):
            terminalreporter.line(line)
