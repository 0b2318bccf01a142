# with.sh NNAOT-OPT FILE TEXT: a program whose `step` is TEXT, on its second line, run on two.nn.
printf 'source = "%s.lua" function step(axis)\n%s\nend\n' "$2" "$3" > "$2.lua"
exec "$1" --passes="shard(mesh=plan:3 plan=\"$2.lua\")" "$(dirname "$0")/two.nn"
