# The command that the conformance suite runs as a client: has the test play the scenario, and fails if the test does.
#
#     bash crates/mcp/tests/mcp/gateway/conformance/client.sh PORT_OF_THE_TEST ADDRESS_OF_THE_SUITE

LC_ALL=C
none='{}'
body="{\"scenario\":\"$MCP_CONFORMANCE_SCENARIO\",\"url\":\"$2\",\"context\":${MCP_CONFORMANCE_CONTEXT:-$none}}"
exec 3<>"/dev/tcp/127.0.0.1/$1"
printf 'POST / HTTP/1.0\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s' ${#body} "$body" >&3
answer=$(cat <&3)
echo "$answer" >&2
[[ $answer == HTTP/1.?" 200 "* ]]
