# A stand-in for a coding agent, for docs/unattended.md: it asks before it cleans up, and says hello otherwise.
asked='{"sessionId":"s-1","toolCall":{"toolCallId":"call-1","title":"rm -r build","kind":"execute","status":"pending"},"options":[{"optionId":"allow","name":"Allow","kind":"allow_once"},{"optionId":"reject","name":"Reject","kind":"reject_once"}]}'
say() { printf '{"jsonrpc":"2.0",%s}\n' "$1"; }
chunk() { say "\"method\":\"session/update\",\"params\":{\"sessionId\":\"s-1\",\"update\":{\"sessionUpdate\":\"agent_message_chunk\",\"content\":{\"type\":\"text\",\"text\":\"$1\"}}}"; }
end() { say "\"id\":$prompt,\"result\":{\"stopReason\":\"$1\"}"; }
while IFS= read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/^{"jsonrpc":"2.0","id":\([0-9]*\),.*/\1/p')
  case "$line" in
    *'"method":"initialize"'*) say "\"id\":$id,\"result\":{\"protocolVersion\":1,\"agentInfo\":{\"name\":\"stand-in\",\"version\":\"1\"}}" ;;
    *'"method":"session/new"'*) say "\"id\":$id,\"result\":{\"sessionId\":\"s-1\"}" ;;
    *'"method":"session/prompt"'*[Cc]lean*) prompt=$id; say "\"id\":0,\"method\":\"session/request_permission\",\"params\":$asked" ;;
    *'"method":"session/prompt"'*) prompt=$id; chunk 'Hello.'; end end_turn ;;
    *'"optionId":"allow"'*) chunk 'The build folder is gone.'; end end_turn ;;
    *'"outcome"'*) chunk 'I was not allowed to.'; end end_turn ;;
    *'"method":"session/cancel"'*) end cancelled ;;
  esac
done
