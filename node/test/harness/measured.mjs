// A server whose signals are read through every exporter: plain data, Prometheus, OpenTelemetry, reports.

import { writeSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { McpServer } from '@modelcontextprotocol/server';
import { StdioServerTransport } from '@modelcontextprotocol/server/stdio';
import { AggregationTemporality, MeterProvider, MetricReader } from '@opentelemetry/sdk-metrics';
import { current, guard, instrument, onCancelled, prometheus, runInWorker, stats } from 'countermand';
import { z } from 'zod';

class Reader extends MetricReader {
	selectAggregationTemporality() {
		return AggregationTemporality.CUMULATIVE;
	}
	async onShutdown() {}
	async onForceFlush() {}
}

const tell = (event, more = {}) => writeSync(3, `${JSON.stringify({ event, ...more })}\n`);
const reader = new Reader();
instrument(new MeterProvider({ readers: [reader] }).getMeter('tests'));
onCancelled((report) => tell('report', { report }));

const server = new McpServer({ name: 'measured', version: '1.0.0' });
const text = (text) => ({ content: [{ type: 'text', text }] });
const tool = (name, body) =>
	server.registerTool(
		name,
		{ inputSchema: z.object({ tag: z.string().optional(), ms: z.number().optional() }) },
		body,
	);

tool('wait', async ({ tag }) => {
	const over = current().whenCancelled();
	tell('start', { tag });
	await over;
	return text(tag);
});
tool('linger', async ({ tag, ms }) => {
	const over = current().whenCancelled();
	tell('start', { tag });
	await over;
	await sleep(ms);
	return text(tag);
});
tool('mail', async ({ tag }) => {
	const token = current();
	token.commit();
	tell('start', { tag });
	await token.whenCancelled();
	return text(tag);
});
tool('thread', async ({ tag }) => {
	const jobs = new URL('jobs.mjs', import.meta.url);
	return text(await runInWorker(jobs, { tag }, { name: 'loop', graceMs: 1e6 }));
});
tool('process', async ({ tag }) => {
	const deaf = 'trap "" TERM; echo "$0"; while :; do sleep 1; done';
	const said = JSON.stringify({ event: 'process', tag });
	await current().spawn('sh', ['-c', deaf, said], { graceMs: 1e6, stdio: ['ignore', 3, 'inherit'] }).exited;
	return text(tag);
});
tool('echo', async () => text('still here'));
tool('signals', async () => {
	const { resourceMetrics } = await reader.collect();
	return text(
		JSON.stringify({ stats: stats(), prometheus: prometheus(), metrics: resourceMetrics.scopeMetrics }),
	);
});

await guard(server, { graceMs: 200, connection: { limits: { orphanAfterMs: 200 } } }).connect(
	new StdioServerTransport(),
);
