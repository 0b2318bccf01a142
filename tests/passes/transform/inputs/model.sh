# model.sh NNAOT-OPT MODULE FILE TEXT: a program whose `model` is TEXT, on its second line.
printf 'function step() end function model()\n%s\nend\n' "$4" > "$3.lua"
exec "$1" --passes="transform(plan=\"$3.lua\")" "$2"
