# Functions that kafka.sh and cassandra.sh source: jars from Maven, and processes identified by a file among their arguments.
#
# The sourcing script sets: what (name in messages), jars (directory), dir, count (the number of the server for a command, or empty),
# settings_file (name of the file, in the directory of each server, that is an argument of its process), before_settings (the text of that
# argument before the path).
# shellcheck shell=bash

fail() {
    echo "$(basename "$0"): $*" >&2
    exit 1
}

# Makes the directory of a command that needs one.
prepare_directory() { # COMMAND
    [[ $1 =~ ^(start|run|stop|kill|pause|resume)$ ]] || return 0
    [ -n "$dir" ] || fail "$1 needs a directory"
    mkdir -p "$dir"
    dir=$(cd "$dir" && pwd)
}

# Downloads artefacts with their dependencies. The directory of the jars appears only when it is complete.
install_jars() { # GROUP:ARTEFACT:VERSION...
    [ -d "$jars" ] && return
    local work one group artefact version
    work=$(mktemp -d)
    {
        echo "<project><modelVersion>4.0.0</modelVersion>"
        echo "<groupId>tidewire</groupId><artifactId>test-server</artifactId><version>0</version><dependencies>"
        for one in "$@"; do
            IFS=: read -r group artefact version <<<"$one"
            echo "<dependency><groupId>$group</groupId><artifactId>$artefact</artifactId><version>$version</version></dependency>"
        done
        echo "</dependencies></project>"
    } >"$work/pom.xml"
    mvn -q -B -f "$work/pom.xml" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$work/jars" >&2 ||
        fail "Maven could not download the jars"
    mkdir -p "$(dirname "$jars")"
    rm -rf "$jars.new"
    mv "$work/jars" "$jars.new"
    mv "$jars.new" "$jars"
    rm -r "$work"
}

has_jars() { [ -d "$jars" ] && command -v java >/dev/null; }

# Prints the process of a server. A stored number counts only while its process has the file of this server among its arguments.
process() { # NUMBER
    local pid
    pid=$(cat "$dir/$1/pid" 2>/dev/null) || return 0
    if tr '\0' '\n' 2>/dev/null <"/proc/$pid/cmdline" | grep -qxFe "${before_settings:-}$dir/$1/$settings_file"; then echo "$pid"; fi
}

# Stores the process of a started server, and waits until it has its own arguments instead of those of this script.
started() { # NUMBER PROCESS
    echo "$2" >"$dir/$1/pid"
    for _ in $(seq 200); do
        [ -z "$(process "$1")" ] && kill -0 "$2" 2>/dev/null || break
        sleep 0.02
    done
}

send() { # SIGNAL NUMBER
    local pid
    pid=$(process "$2")
    [ -z "$pid" ] || kill -s "$1" "$pid" 2>/dev/null || true
}

await_end() { # NUMBER
    for _ in $(seq 300); do
        [ -n "$(process "$1")" ] || return 0
        sleep 0.05
    done
    fail "$what $1 did not end within 15 s"
}

accepts() { (exec 3<>"/dev/tcp/$1/$2") 2>/dev/null; } # HOST PORT

# The kernel may hold the port of a killed process for a moment.
await_free() { # HOST PORT
    for _ in $(seq 50); do
        accepts "$1" "$2" || return 0
        sleep 0.1
    done
    fail "port $2 of $1 is in use"
}

await_ready() { # NUMBER TEXT_OF_THE_LOG
    local log=$dir/$1/log
    for _ in $(seq 900); do
        ! grep -q "$2" "$log" || return 0
        [ -n "$(process "$1")" ] || fail "$what $1 ended: $(tail -n 20 "$log")"
        sleep 0.1
    done
    fail "$what $1 is not ready after 90 s: $(tail -n 20 "$log")"
}

# The servers for a command: the named one, or all.
named() {
    if [ -n "$count" ]; then echo "$count"; else find "$dir" -mindepth 2 -maxdepth 2 -name pid -printf '%h\n' | xargs -rn1 basename; fi
}

kill_all() {
    local one
    for one in $(named); do send KILL "$one"; done
    for one in $(named); do await_end "$one"; done
}

# The commands of all these scripts. `install` and `start` are functions of the script.
run_command() { # COMMAND
    local one total
    case $1 in
    install) install ;;
    check) has_jars ;;
    start) start "${count:-1}" ;;
    run)
        [ -z "$(ls -A "$dir")" ] || fail "$dir is not empty"
        total=${count:-1} count=
        trap 'kill_all; rm -rf "$dir"' EXIT
        trap 'exit 1' INT TERM
        start "$total"
        while read -r _; do :; done
        ;;
    stop)
        for one in $(named); do send CONT "$one"; send TERM "$one"; done
        for one in $(named); do await_end "$one"; done
        ;;
    kill) kill_all ;;
    pause) for one in $(named); do send STOP "$one"; done ;;
    resume) for one in $(named); do send CONT "$one"; done ;;
    *) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "$0" ;;
    esac
}
