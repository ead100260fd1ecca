// A server on @modelcontextprotocol/sdk 1.x whose tool can be stopped although it never yields.

import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { current, guard } from 'countermand';
import { z } from 'zod';

const server = new McpServer({ name: 'primes', version: '1.0.0' });

server.registerTool('count_primes', { inputSchema: { below: z.number() } }, ({ below }) => {
	const token = current();
	let count = 0;
	for (let n = 2; n < below; n++) {
		token.checkpoint();
		let prime = true;
		for (let d = 2; prime && d * d <= n; d++) prime = n % d !== 0;
		if (prime) count++;
	}
	return { content: [{ type: 'text', text: String(count) }] };
});

await guard(server).connect(new StdioServerTransport());
