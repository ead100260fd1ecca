// The drop-in transport, where one line is to be changed and no more.

import { McpServer } from '@modelcontextprotocol/server';
import { current, StdioServerTransport } from 'countermand';
import { z } from 'zod';

const server = new McpServer({ name: 'spinner', version: '1.0.0' });

server.registerTool('spin', { inputSchema: z.object({}) }, () => {
	const token = current();
	while (!token.cancelled);
	return { content: [{ type: 'text', text: 'nobody will read this' }] };
});

await server.connect(new StdioServerTransport());
