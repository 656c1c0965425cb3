// A client written against the official TypeScript SDK; plays the same turns as sdk_client.py.
// Usage: node sdk_client.mjs FOLDER_OF_PEERS allow|reject FOLDER COMMAND [ARG…]
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const [peers, answer, cwd, command, ...args] = process.argv.slice(2);
const acp = await import(pathToFileURL(`${peers}/node_modules/@agentclientprotocol/sdk/dist/v1/stable/acp.js`));
const { agent: toAgent, client: toClient } = acp.methods;

const seen = [];
let waiting;
const isWaiting = new Promise((resolve) => (waiting = resolve));

const child = spawn(command, args, { cwd, stdio: ["pipe", "pipe", "inherit"] });
const exited = new Promise((resolve) => child.on("exit", resolve));

const outcome = await acp
  .client({ name: "scripted" })
  .onRequest(toClient.session.requestPermission, ({ params }) => {
    const chosen = params.options.find((option) => option.kind.startsWith(answer));
    seen.push(["question", params.toolCall.toolCallId, chosen.optionId]);
    return { outcome: { outcome: "selected", optionId: chosen.optionId } };
  })
  .onNotification(toClient.session.update, ({ params: { update } }) => {
    const text = update.content?.text;
    seen.push([update.sessionUpdate, text ?? update.status ?? null]);
    if (text === "waiting") waiting();
  })
  .connectWith(acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout)), async (agent) => {
    const prompt = (session, text) =>
      agent.request(toAgent.session.prompt, { sessionId: session, prompt: [{ type: "text", text }] });
    await agent.request(toAgent.initialize, { protocolVersion: acp.PROTOCOL_VERSION, clientCapabilities: {} });
    const { sessionId } = await agent.request(toAgent.session.new, { cwd, mcpServers: [] });
    const stops = [(await prompt(sessionId, "plain")).stopReason, (await prompt(sessionId, "tool")).stopReason];
    const turn = prompt(sessionId, "wait");
    await isWaiting;
    await agent.notify(toAgent.session.cancel, { sessionId });
    stops.push((await turn).stopReason);
    return { session: sessionId, stops, seen };
  });
child.stdin.end();
const status = await exited;
console.log(JSON.stringify({ ...outcome, status }));
process.exit(0);
