// Work that would block the loop, in a thread that a cancel ends; other requests are answered meanwhile.

import { McpServer } from '@modelcontextprotocol/server';
import { StdioServerTransport } from '@modelcontextprotocol/server/stdio';
import { guard, runInWorker } from 'countermand';
import { z } from 'zod';

const server = new McpServer({ name: 'primes', version: '1.0.0' });
const primes = new URL('./jobs/primes.mjs', import.meta.url);

server.registerTool('count_primes', { inputSchema: z.object({ below: z.number() }) }, async ({ below }) => {
	const count = await runInWorker(primes, below, { graceMs: 100 });
	return { content: [{ type: 'text', text: String(count) }] };
});

await guard(server).connect(new StdioServerTransport());
