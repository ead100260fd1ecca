#!/bin/sh
# A tree such as a careless tool leaves behind: a wrapper, a server, and descendants that do what they can to
# stay. All but the wrapper and the server ignore SIGTERM, and all hold the wrapper's stdout.
#
#     tree.sh FOLDER
#
# Each writes its number into a file of its name in FOLDER; `ready` is there when all have.

folder=$1
ignore='trap "" TERM HUP INT; echo $$ >"$0/$1"; while :; do sleep 1000; done'

server() {
    # In the group.
    sh -c "$ignore" "$folder" grandchild &
    # In a session of its own.
    setsid sh -c "$ignore" "$folder" session &
    # Forked twice: its parent is gone, and its session is another.
    sh -c 'setsid sh -c "$2" "$0" daemon & exit 0' "$folder" - "$(printf %s "$ignore" | sed 's/\$1/daemon/')"
    sh -c 'echo $PPID' >"$folder/server"
    for name in grandchild session daemon; do
        while [ ! -s "$folder/$name" ]; do sleep 0.01; done
    done
    echo ready >"$folder/ready"
    wait
}

echo $$ >"$folder/wrapper"
server &
wait
