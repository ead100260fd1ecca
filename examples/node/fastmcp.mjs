// A framework that builds its own transport: node --import countermand/register fastmcp.mjs

import { current } from 'countermand';
import { FastMCP } from 'fastmcp';
import { z } from 'zod';

const server = new FastMCP({ name: 'waiter', version: '1.0.0' });

server.addTool({
	name: 'wait',
	description: 'Waits until it is cancelled',
	parameters: z.object({}),
	execute: async () => `cancelled: ${await current().whenCancelled()}`,
});

await server.start({ transportType: 'stdio' });
