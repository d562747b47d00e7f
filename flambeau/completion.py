"""Completion of `flambeau`'s words in bash, zsh and fish, written from the parser of its command line.

A script holds all that it needs: a shell that completes a word starts no Python.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import NamedTuple

SHELLS = ("bash", "zsh", "fish")
FILES = "files"
_FILES = {"report", "script"}  # whose values are files


class Flag(NamedTuple):
    """An argument of a command: what is typed for it, what it is for, its values (words, FILES, None for anything).

    takes: needs a value.  rest: takes all that follows.
    """

    words: tuple[str, ...]
    about: str
    values: tuple[str, ...] | str | None
    takes: bool
    rest: bool = False


class Command(NamedTuple):
    """A command: its flags, and what its first argument that is no flag may be (empty where it has none)."""

    name: str
    about: str
    flags: list[Flag]
    first: tuple[str, ...] | str


def commands(parser: argparse.ArgumentParser) -> list[Command]:
    """What may be typed, in the parser's order."""
    sub = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    about = {a.dest: a.help or "" for a in sub._choices_actions}
    found = []
    for name, inner in sub.choices.items():
        flags = [Flag(tuple(a.option_strings), a.help or "", _values(a), a.nargs in (None, argparse.REMAINDER), a.nargs == argparse.REMAINDER)
                 for a in inner._actions if a.option_strings]
        places = [a for a in inner._actions if not a.option_strings]
        found.append(Command(name, about[name], flags, (_values(places[0]) or ()) if places else ()))
    return found


def _values(action: argparse.Action) -> tuple[str, ...] | str | None:
    if action.choices is not None:
        return tuple(map(str, action.choices))
    if action.dest in _FILES:
        return FILES
    if action.dest == "device":
        return ("cpu", "cuda")
    if action.dest == "sim_model":
        from ._core.drivers.simulated.models import MODELS
        return tuple(m.name.replace(" ", "-") for m in MODELS.values())
    if action.dest == "queue":
        from ._core.drivers.simulated.queues import MODES
        return tuple(MODES)
    return None


def script(shell: str, parser: argparse.ArgumentParser) -> str:
    """The text for one of `SHELLS`."""
    return "\n".join({"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](parser)) + "\n"


def _top(parser: argparse.ArgumentParser) -> list[Flag]:
    return [Flag(tuple(a.option_strings), a.help or "", None, False) for a in parser._actions if a.option_strings]


def _bash(parser: argparse.ArgumentParser) -> Iterator[str]:
    found = commands(parser)
    yield '# Completion of flambeau in bash: eval "$(flambeau completion bash)"'
    yield "_flambeau() {"
    yield '    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command= first= values= i'
    # bash parts --flag=value into three words
    yield '    [[ $word == "=" ]] && word='
    yield '    [[ $before == "=" ]] && before=${COMP_WORDS[COMP_CWORD-2]}'
    yield "    for ((i = 1; i < COMP_CWORD; i++)); do"
    yield '        case $command:${COMP_WORDS[i]} in'
    taking, rest = ("|".join(f"{c.name}:{w}" for c in found for f in c.flags if f.takes and f.rest == rest for w in f.words) for rest in (False, True))
    yield f"            {rest}) ((i + 1 < COMP_CWORD)) && first=${{COMP_WORDS[i+1]}} && break ;;"
    yield f"            {taking}) [[ ${{COMP_WORDS[i+1]}} == = ]] && ((i++)); ((i++)) ;;"
    yield "            *:-*) ;;"
    yield "            :*) command=${COMP_WORDS[i]} ;;"
    yield "            *) first=${COMP_WORDS[i]}; break ;;"
    yield "        esac"
    yield "    done"
    yield "    COMPREPLY=()"
    yield '    [[ $first ]] && return  # the arguments of a program are its own: bash completes files'
    yield '    case $command:$before in'
    for c in found:
        for f in c.flags:
            if not f.takes and not f.values:
                continue
            pattern = "|".join(f"{c.name}:{w}" for w in f.words)
            yield f"        {pattern}) " + ("return ;;" if not f.values or f.values == FILES else f'values="{" ".join(f.values)}" ;;')
    yield "    esac"
    yield '    if [[ ! $values ]]; then'
    yield '        case $command in'
    tops = " ".join([*(c.name for c in found), *(w for f in _top(parser) for w in f.words)])
    yield f'            "") values="{tops}" ;;'
    for c in found:
        flags = " ".join(w for f in c.flags for w in f.words)
        words = " ".join(c.first) if c.first != FILES else ""
        files = " [[ $word != -* ]] && return;" if c.first == FILES else ""
        yield f'            {c.name}){files} values="{" ".join(filter(None, (words, flags)))}" ;;'
    yield "        esac"
    yield "    fi"
    yield '    COMPREPLY=($(compgen -W "$values" -- "$word"))'
    yield "}"
    yield "complete -o default -F _flambeau flambeau"


def _zsh(parser: argparse.ArgumentParser) -> Iterator[str]:
    def quoted(text: str) -> str:
        return text.replace("'", "'\\''")

    def told(text: str) -> str:  # inside a specification
        return quoted(text.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]").replace(":", "\\:"))

    def specification(flag: Flag) -> Iterator[str]:
        for word in flag.words:
            value = ""
            if flag.takes or flag.values:
                kind = "_files" if flag.values == FILES else f"({' '.join(flag.values)})" if flag.values else " "
                value = f":value:{kind}"
            same = f"({' '.join(flag.words)})" if len(flag.words) > 1 else ""
            yield f"'{same}{word}[{told(flag.about)}]{value}'"

    found = commands(parser)
    yield "#compdef flambeau"
    yield '# Completion of flambeau in zsh: eval "$(flambeau completion zsh)" after compinit, or a file _flambeau in a folder of $fpath'
    yield "_flambeau() {"
    yield "    local state line"
    yield "    local -a commands"
    yield "    commands=(" + " ".join(f"'{c.name}:{told(c.about)}'" for c in found) + ")"
    tops = " ".join(s for f in _top(parser) for s in specification(f))
    yield f"    _arguments -C {tops} '1:command:->command' '*::argument:->argument'"
    yield "    case $state in"
    yield "        command) _describe command commands ;;"
    yield "        argument) case $words[1] in"
    for c in found:
        flags = " ".join(s for f in c.flags for s in specification(f))
        place = "'1:script:_files' '*:argument:_files'" if c.first == FILES else f"'1:value:({' '.join(c.first)})'" if c.first else ""
        yield f"            {c.name}) _arguments {flags} {place} ;;"
    yield "        esac ;;"
    yield "    esac"
    yield "}"
    yield 'if [[ $funcstack[1] == _flambeau ]]; then _flambeau "$@"; else compdef _flambeau flambeau; fi'


def _fish(parser: argparse.ArgumentParser) -> Iterator[str]:
    def quoted(text: str) -> str:
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

    def line(when: str, flag: Flag) -> str:
        parts = [f"complete -c flambeau -n {quoted(when)}"]
        parts += [f"-l {w[2:]}" if w.startswith("--") else f"-s {w[1:]}" for w in flag.words]
        if flag.values == FILES:
            parts.append("-r -F")
        elif flag.values:
            parts.append(("-x " if flag.takes else "-f ") + f"-a {quoted(' '.join(flag.values))}")
        elif flag.takes:
            parts.append("-x")
        return " ".join([*parts, f"-d {quoted(flag.about)}"])

    found = commands(parser)
    yield "# Completion of flambeau in fish: flambeau completion fish | source"
    yield "complete -c flambeau -n __fish_use_subcommand -f"
    for flag in _top(parser):
        yield line("__fish_use_subcommand", flag)
    for c in found:
        yield f"complete -c flambeau -n __fish_use_subcommand -a {c.name} -d {quoted(c.about)}"
    for c in found:
        when = f"__fish_seen_subcommand_from {c.name}"
        if c.first != FILES:
            yield f"complete -c flambeau -n {quoted(when)} -f" + (f" -a {quoted(' '.join(c.first))}" if c.first else "")
        for flag in c.flags:
            yield line(when, flag)
