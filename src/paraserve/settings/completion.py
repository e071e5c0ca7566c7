"""Completion of a command's flags for bash, zsh and fish, made from declared options.

It must never know a flag: what it writes follows the declarations. Each script stands alone and needs no program but
its shell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paraserve.settings.declare import Option

SHELLS = ("bash", "zsh", "fish")
_FILE_METAVARS = frozenset({"PATH", "FILE"})


def completion(shell: str, program: str, commands: Mapping[str, str], options: Sequence[Option]) -> str:
    """The script for one of `SHELLS`.

    Args:
        program: name of the executable.
        commands: name to one line about it.
        options: of the command ``serve``.
    """
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](program, commands, options)


def _flags(option: Option) -> list[str]:
    return [option.flag, f"--no-{option.key}"] if option.kind == "switch" else [option.flag]


def _takes_file(option: Option) -> bool:
    return option.metavar in _FILE_METAVARS


def _bash(program: str, commands: Mapping[str, str], options: Sequence[Option]) -> str:
    flags = ["--config", "--help", *(flag for option in options for flag in _flags(option))]
    values = "".join(
        f'        {option.flag}) COMPREPLY=($(compgen -W "{" ".join(option.choices)}" -- "$word")); return ;;\n'
        for option in options
        if option.choices
    )
    files = "|".join(["--config", *(option.flag for option in options if _takes_file(option))])
    free = "|".join(
        option.flag for option in options if option.kind != "switch" and not option.choices and not _takes_file(option)
    )
    return f"""\
# bash completion of {program}: eval "$({program} completion bash)"
_{program}() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}}
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "{" ".join(commands)} --help --version" -- "$word"))
        return
    fi
    case ${{COMP_WORDS[1]}} in
        serve) ;;
        completion) COMPREPLY=($(compgen -W "{" ".join(SHELLS)}" -- "$word")); return ;;
        *) return ;;
    esac
    case $before in
{values}        {files}) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$word")); return ;;
        {free}) return ;;
    esac
    COMPREPLY=($(compgen -W "{" ".join(flags)}" -- "$word"))
}}
complete -F _{program} {program}
"""


def _zsh(program: str, commands: Mapping[str, str], options: Sequence[Option]) -> str:
    listed = "\n".join(f"        {_quoted(f'{name}:{text}')}" for name, text in commands.items())
    lines = [f"        {_quoted('--config[Read options from a file]:file:_files')}"]
    for option in options:
        several = "*" if option.kind == "list" else ""
        help = _zsh_help(option)
        if option.kind == "switch":
            lines += [f"        {_quoted(f'{flag}[{help}]')}" for flag in _flags(option)]
            continue
        values = f"({' '.join(option.choices)})" if option.choices else "_files" if _takes_file(option) else ""
        lines.append(f"        {_quoted(f'{several}{option.flag}[{help}]:{option.metavar or option.kind}:{values}')}")
    spec = " \\\n".join(lines)
    return f"""\
#compdef {program}
# zsh completion of {program}: {program} completion zsh > a file _{program} in a directory of $fpath
_{program}() {{
    local -a commands=(
{listed}
    )
    if (( CURRENT == 2 )); then
        _describe command commands
        return
    fi
    case $words[2] in
        completion) _values shell {" ".join(SHELLS)}; return ;;
        serve) ;;
        *) return ;;
    esac
    shift words
    (( CURRENT-- ))
    _arguments \\
{spec}
}}
if [ "$funcstack[1]" = _{program} ]; then _{program} "$@"; else compdef _{program} {program}; fi
"""


def _zsh_help(option: Option) -> str:
    text = _first_sentence(option.help)
    for special in "\\[]:":
        text = text.replace(special, "\\" + special)
    return text


def _fish(program: str, commands: Mapping[str, str], options: Sequence[Option]) -> str:
    serving = "__fish_seen_subcommand_from serve"
    lines = [
        f"# fish completion of {program}: {program} completion fish > ~/.config/fish/completions/{program}.fish",
        f"complete -c {program} -f",
    ]
    for name, text in commands.items():
        lines.append(f"complete -c {program} -n __fish_use_subcommand -a {name} -d {_quoted(text)}")
    lines.append(f"complete -c {program} -n '__fish_seen_subcommand_from completion' -a {_quoted(' '.join(SHELLS))}")
    lines.append(f"complete -c {program} -n '{serving}' -l config -r -F -d 'Read options from a file'")
    for option in options:
        said = f"-d {_quoted(_first_sentence(option.help))}"
        values = (
            f" -x -a {_quoted(' '.join(option.choices))}"
            if option.choices
            else " -r -F"
            if _takes_file(option)
            else ""
            if option.kind == "switch"
            else " -x"
        )
        lines += [f"complete -c {program} -n '{serving}' -l {flag[2:]}{values} {said}" for flag in _flags(option)]
    return "\n".join(lines) + "\n"


def _first_sentence(text: str) -> str:
    return text.split(". ")[0].rstrip(".")


def _quoted(text: str) -> str:
    """For any of the three shells: in single quotes, with those inside ended, escaped and begun again."""
    return "'" + text.replace("'", "'\\''") + "'"
