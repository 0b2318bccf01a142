# say.sh NNAOT-OPT FILE MODULE MESH TEXT: a program whose `step` is TEXT, from its second line on, run on the module.
printf 'function step(axis)\n%b\nend\n' "$5" > "$2.lua"
exec "$1" --passes="shard(mesh=$4 plan=\"$2.lua\")" "$(dirname "$0")/$3"
