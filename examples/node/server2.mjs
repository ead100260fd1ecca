// A server on @modelcontextprotocol/server 2.x. The SDK's own signal works as before; the token adds why.

import { setTimeout as sleep } from 'node:timers/promises';
import { McpServer } from '@modelcontextprotocol/server';
import { StdioServerTransport } from '@modelcontextprotocol/server/stdio';
import { current, guard } from 'countermand';
import { z } from 'zod';

const server = new McpServer({ name: 'sleeper', version: '1.0.0' });

server.registerTool('sleep', { inputSchema: z.object({ seconds: z.number() }) }, async ({ seconds }, ctx) => {
	current().onCancel((cause) => console.error(`cancelled: ${cause}`));
	await sleep(seconds * 1000, undefined, { signal: ctx.mcpReq.signal });
	return { content: [{ type: 'text', text: 'slept' }] };
});

await guard(server).connect(new StdioServerTransport());
