// A server that asks two others, on @modelcontextprotocol/server and /client 2.x. Cancel its request, and theirs are
// cancelled with it, from the thread that reads the wire; end it, and nothing of them is left.

import { fileURLToPath } from 'node:url';
import { Client } from '@modelcontextprotocol/client';
import { McpServer } from '@modelcontextprotocol/server';
import { StdioServerTransport } from '@modelcontextprotocol/server/stdio';
import { call, guard, StdioClientTransport } from 'countermand';
import { z } from 'zod';

async function downstream() {
	const client = new Client({ name: 'downstream', version: '1.0.0' });
	const server = fileURLToPath(new URL('processes.mjs', import.meta.url));
	await client.connect(new StdioClientTransport({ command: process.execPath, args: [server] }));
	return client;
}

const clients = await Promise.all([downstream(), downstream()]);
const server = new McpServer({ name: 'upstream', version: '1.0.0' });

server.registerTool('wait_twice', { inputSchema: z.object({ seconds: z.number() }) }, async ({ seconds }) => {
	const wait = { name: 'wait', arguments: { seconds } };
	// Made for this tool's request, because it is made within its handler.
	const calls = clients.map((client) => call(client, 'tools/call', wait, { totalMs: 600_000 }));
	try {
		const results = await Promise.all(calls.map(({ result }) => result));
		return { content: results.flatMap(({ content }) => content) };
	} finally {
		// Where one has failed, nobody needs the other.
		for (const one of calls) one.cancel();
	}
});

server.server.onclose = () => Promise.all(clients.map((client) => client.close()));
await guard(server).connect(new StdioServerTransport());
