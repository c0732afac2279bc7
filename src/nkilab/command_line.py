"""Programs, their verbs and options: how wrong uses are told, what help shows, which status comes out."""

from __future__ import annotations

import atexit
import gc
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import click
from click.decorators import FC
from click.shell_completion import CompletionItem, get_completion_class, shell_complete

from ._lazy import part
from .cycles import SELDOM
from .disk import check_outputs
from .documents import Place, one_document, print_document
from .errors import EXIT_FINE, NkilabError, UsageError, did_you_mean
from .failures import Failure, failure_of
from .progress import say

# Before NumPy is loaded: threads of its BLAS would look for work for 2^26 cycles, a tenth of a small verb.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "20")

T = TypeVar("T")
COMPLETION = "_NKILAB_COMPLETE"
# Words that people try first, and what does that here.
_OTHER_WORDS = {
    "help": "nkilab --help lists the verbs", "version": "write nkilab --version",
    "simulate": "did you mean run?",
    "benchmark": "did you mean estimate?", "time": "did you mean estimate?", "lint": "did you mean check?",
    "compile": "did you mean einsum?", "new": "did you mean init?", "view": "did you mean profile?",
}  # fmt: skip


class Verb(click.Command):
    """A verb, with examples below its help.

    Args:
        examples: command lines that can be copied.
    """

    def __init__(self, *args: Any, examples: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments; a mistake knows whose they are."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise

    def invoke(self, ctx: click.Context) -> object:
        """Do what the verb does; what it would write over, or cannot write, is told first."""
        outputs = {
            _called(p): ctx.params[p.name] for p in self.params if p.name and p.type in (OUTPUT, FOLDER)
        }
        others = (ctx.params[p.name] for p in self.params if p.name and p.type not in (OUTPUT, FOLDER))
        words = [word for value in others for word in (value if isinstance(value, tuple | list) else [value])]
        folders = [_called(p) for p in self.params if p.type is FOLDER]
        asked = {option: path for option, path in outputs.items() if path}
        check_outputs(asked, [word for word in words if isinstance(word, str)], folders)
        return super().invoke(ctx)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        if not self.examples:
            return
        with formatter.section("Examples"):
            for line in self.examples:
                # a command line is copied: it is never wrapped
                formatter.write(f"{'':{formatter.current_indent}}{line}\n")


def verb(
    *examples: str, name: str | None = None, context_settings: dict[str, object] | None = None,
    add_help_option: bool = True,
) -> Callable[[Callable[..., object]], Verb]:  # fmt: skip
    """Make a function a verb, with command lines that can be copied; the others as of `click.command`."""
    return click.command(
        name, Verb, examples=examples, context_settings=context_settings, add_help_option=add_help_option
    )


class Program(click.Group):
    """A group of verbs; tells every error in one message and chooses the exit status.

    Where JSON is asked for, an error is a document too.
    """

    command_class = Verb

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Verbs in the order they are declared."""
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verbs, each with its whole sentence."""
        with formatter.section("Verbs"):
            formatter.write_dl([(name, _sentence(verb)) for name, verb in self.commands.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The verb that is asked for.

        Raises:
            UsageError: if there is none of that name.
        """
        word = args[0]
        if self.get_command(ctx, word) is None and not word.startswith("-"):
            hint = _OTHER_WORDS.get(word, "") if ctx.info_name == "nkilab" else ""
            listed = f"the verbs are {', '.join(self.commands)}"
            raise UsageError(
                f"there is no verb {word}", hint=hint or did_you_mean(word, self.commands, listed)
            )
        return super().resolve_command(ctx, args)

    def main(
        self, args: Sequence[str] | None = None, prog_name: str | None = None,
        complete_var: str | None = None, standalone_mode: bool = True, **extra: Any,
    ) -> Any:  # fmt: skip
        """Run the verb that is asked for and end the process with its status."""
        arguments, name = list(sys.argv[1:] if args is None else args), prog_name or "nkilab"
        instruction = os.environ.get(COMPLETION)
        if instruction and name == "nkilab":
            sys.exit(shell_complete(self, {}, name, COMPLETION, instruction))
        # Python need not look for cycles among what it loads: neither now, nor at the end
        gc.set_threshold(SELDOM)
        atexit.register(gc.freeze)
        sys.exit(self.status(arguments, name))

    def status(self, arguments: list[str], name: str) -> int:
        """Run the verb that is asked for; tell what goes wrong and return the exit status."""
        with one_document(self._document_path(arguments)) as place:
            ended = self._ended(arguments, name)
            if isinstance(ended, Failure):
                _tell(ended, place, arguments)
        return ended.status if isinstance(ended, Failure) else ended

    def _ended(self, arguments: list[str], name: str) -> int | Failure:
        try:
            with self.make_context(name, arguments or ["--help"]) as ctx:
                status: int = self.invoke(ctx) or EXIT_FINE
            if sys.stdout is not None:
                sys.stdout.flush()
            return status
        except click.exceptions.Exit as request:
            return request.exit_code
        except BaseException as error:
            return failure_of(in_our_words(error, name), name)

    def _document_path(self, arguments: list[str]) -> str | None:
        """Where these arguments want JSON, however wrong they are: a file's path, "" for standard output."""
        place = next((n for n, word in enumerate(arguments) if not word.startswith("-")), len(arguments))
        verb = self.commands.get("".join(arguments[place : place + 1]))
        if verb is None:
            return "" if "--json" in arguments else None
        ctx = verb.context_class(verb, resilient_parsing=True, **verb.context_settings)
        parser = verb.make_parser(ctx)
        parser.ignore_unknown_options = True
        options = parser.parse_args(arguments[place + 1 :])[0]
        return options.get("json_file", "" if "as_json" in options else None)


def _tell(failure: Failure, place: Place | None, arguments: Sequence[str]) -> None:
    """Print what went wrong, and its document where one is asked for and there is none yet.

    A file that cannot be written, or that the command reads, gets none.
    """
    with suppress(BrokenPipeError):
        print(failure.text, file=sys.stderr, end="\n" * bool(failure.text))
    if failure.kind in ("closed", "output"):
        drop_output()
    if failure.kind in ("closed", "output") or place is None or place.is_filled:
        return
    words = zip(["", *arguments], arguments, strict=False)
    files = {"--json": place.path} if place.path else {}
    with suppress(BrokenPipeError, NkilabError):
        check_outputs(files, [word for before, word in words if before != "--json"])
        print_document(failure.to_dict())


def _sentence(verb: click.Command) -> str:
    return (verb.help or "").partition("\n\n")[0].rstrip(".")


def drop_output() -> None:
    """Send what standard output still holds nowhere, so that Python does not fail on it at its end."""
    with suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def in_our_words(error: BaseException, name: str) -> BaseException:
    """An error as it is, or what click found wrong as one of ours."""
    if not isinstance(error, click.UsageError):
        return error
    path = error.ctx.command_path if error.ctx is not None else name
    problem, hint = _wrong_use(error, f"{path} --help shows how")
    return UsageError(problem, hint=hint).located(path, "")


def _wrong_use(error: click.UsageError, hint: str) -> tuple[str, str]:
    """What click found wrong, and a hint."""
    match error:
        case click.NoSuchOption():
            known = error.ctx.command.params if error.ctx is not None else []
            options = [word for p in known if isinstance(p, click.Option) for word in p.opts]
            return f"there is no option {error.option_name}", did_you_mean(
                error.option_name, [*options, "--help"], hint
            )
        case click.MissingParameter() if error.param is not None:
            return f"{_spelled(error.param)} is not given", hint
        case click.BadOptionUsage() if "requires an argument" in error.message:
            return f"{error.option_name} needs a value", hint
        case click.BadOptionUsage():
            return f"{error.option_name} takes no value", hint
    more = re.fullmatch(r"Got unexpected extra arguments? \((.*)\)", error.message)
    return f"{more[1]} is one argument too many" if more else error.format_message(), hint


def _spelled(parameter: click.Parameter) -> str:
    """A parameter as help spells it."""
    if isinstance(parameter, click.Argument):
        return parameter.metavar or (parameter.name or "").upper()
    return f"{max(parameter.opts, key=len)} {parameter.metavar or ''}".rstrip()


def _called(parameter: click.Parameter | None) -> str:
    if parameter is None:
        return "a value"
    return _spelled(parameter) if isinstance(parameter, click.Argument) else max(parameter.opts, key=len)


class OneOf(click.ParamType):
    """One of a few words.

    Args:
        words: those.
    """

    name = "word"

    def __init__(self, *words: str) -> None:
        self.words = words

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The word itself.

        Raises:
            UsageError: if it is another one.
        """
        if value in self.words:
            return str(value)
        listed = ", ".join(filter(None, self.words))
        hint = did_you_mean(str(value), self.words)
        raise UsageError(f"{_called(param)} is {value}; it must be one of {listed}", hint=hint)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Those that begin so."""
        return _beginning(self.words, incomplete)


class Number(click.ParamType):
    """A number that is not below a least one.

    Args:
        kind: int or float.
        least: that one.
        most: the greatest, None for none.
        reason: why there is a greatest.
    """

    name = "number"

    def __init__(
        self, kind: type[int] | type[float], least: float | None = None, most: int | None = None,
        reason: str = "",
    ) -> None:  # fmt: skip
        self.kind = kind
        self.least = least
        self.most = most
        self.reason = reason

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number.

        Raises:
            UsageError: if it is none, or outside the bounds.
        """
        try:
            number = self.kind(value)
        except (ValueError, OverflowError):
            number = None
        # a number that is not equal to itself is not a number
        if number is None or number != number or (self.least is not None and number < self.least):
            what = "a whole number" if self.kind is int else "a number"
            bound = "" if self.least is None else f" of at least {self.least}"
            raise UsageError(f"{_called(param)} is {value}; it must be {what}{bound}")
        if self.most is not None and number > self.most:
            problem = f"{_called(param)} is {value}; it must be at most {self.most}: {self.reason}"
            raise UsageError(problem)
        return number


class Known(click.ParamType):
    """A word that a verb looks at itself; shells complete it.

    Args:
        words: makes those that are known, when a shell asks.
        is_list: whether several may be given, with commas.
    """

    name = "text"

    def __init__(self, words: Callable[[], Sequence[str]], *, is_list: bool = False) -> None:
        self._words = words
        self._is_list = is_list

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Those that begin so."""
        before, comma, last = incomplete.rpartition(",") if self._is_list else ("", "", incomplete)
        return _beginning([before + comma + word for word in self._words()], before + comma + last)


class PathLike(click.ParamType):
    """A path, perhaps with more behind it; shells complete files."""

    name = "path"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """What the shell knows of files."""
        return [CompletionItem(incomplete, type="file")]


def _beginning(words: Sequence[str], start: str) -> list[CompletionItem]:
    return [CompletionItem(word) for word in words if word.startswith(start)]


PATH = PathLike()
# Paths of files and of folders that a verb writes: `Verb.invoke` checks them.
OUTPUT, FOLDER = PathLike(), PathLike()
CHIPS = Known(lambda: list(part("machine").MACHINES), is_list=True)
VERSIONS = Known(lambda: part("dialects.history").VERSIONS)
NAMES = Known(lambda: part("explain").known_names())


def optional(*names: str, metavar: str, help: str, type: click.ParamType | None = None) -> Callable[[FC], FC]:
    """An option with a value; "" where it is left out."""
    return click.option(*names, default="", metavar=metavar, type=type, help=help)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON alone on standard output.")


def show(document: T, text: Callable[[T], str], *, as_json: bool) -> None:
    """Print a document, or what it looks like as text."""
    if as_json:
        print_document(document)
    else:
        say(text(document))


def completion_script(program: click.Command, shell: str) -> str:
    """The script that lets bash, zsh or fish complete `nkilab`."""
    completion = get_completion_class(shell)
    assert completion is not None
    return completion(program, {}, "nkilab", COMPLETION).source()
