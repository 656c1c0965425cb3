"""Ask an agent something, and keep an eye on it."""

import asyncio

from acp_ledger.client import Observer, PermissionReply, PermissionRequest, PromptFailed, Update, open_client


class Watch(Observer):
    """Grants what reads, and prints what is said as it is committed."""

    def update(self, update: Update) -> None:
        """Hear of an update, which is in the ledger."""
        print(f"{update.update_sequence}: {update.kind} {update.text!r}")

    async def answer(self, request: PermissionRequest) -> PermissionReply | None:
        """Answer first; None leaves the question to the policy."""
        if request.tool_kind == "read":
            return PermissionReply("selected", request.options[0].option_id)
        return None

    def commit(self, request: PermissionRequest) -> None:
        """Hear of a decision, which is in the ledger, before the agent does."""
        print(f"{request.title}: {request.outcome} {request.option_id}, by {request.decided_by}")


async def main() -> None:
    """Have a conversation of two turns."""
    async with open_client(["sh", "docs/agent.sh"], agent="stand-in", observer=Watch()) as client:
        await client.start()
        print(await client.prompt("Say hello"))
        try:
            print(await client.prompt("Clean up"))
        except PromptFailed as failed:
            print(failed.outcome, failed.record.text)


asyncio.run(main())
