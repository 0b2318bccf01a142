# at.sh NNAOT-OPT FILE OPTIONS MODEL PASSES TEXT: a program whose `step` is TEXT, on its second line; OPTIONS are those
# of shard besides its plan.
printf 'function step(axis)\n%s\nend\n' "$6" > "$2.lua"
exec "$1" --passes="$5,shard($3 plan=\"$2.lua\")" "$4"
