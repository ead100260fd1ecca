/**
 * The signals through OpenTelemetry, by whatever SDK the program has set up.
 */

import type { Attributes, Meter, ObservableResult } from '@opentelemetry/api';
import { onCancelled } from './reports.js';
import { stats } from './stdio.js';
import type { Stats } from './wire.js';

type Tool = Stats['tools'][number];

/**
 * Reports the signals through OpenTelemetry, from now on.
 *
 * @param meter where to; by default the meter `countermand` of the global meter provider
 * @throws without `@opentelemetry/api`
 */
export function instrument(meter?: Meter): void {
	const from =
		meter ??
		(require('@opentelemetry/api') as typeof import('@opentelemetry/api')).metrics.getMeter('countermand');
	const each = (value: (tool: Tool) => number) => (result: ObservableResult) => {
		for (const tool of stats()?.tools ?? []) result.observe(value(tool), attributes(tool));
	};
	const by = (key: string, counts: object, result: ObservableResult, more: Attributes) => {
		for (const [name, count] of Object.entries(counts)) result.observe(count, { ...more, [key]: name });
	};
	const counter = (name: string, unit: string, description: string, observe: (r: ObservableResult) => void) =>
		from.createObservableCounter(`countermand.${name}`, { unit, description }).addCallback(observe);
	const gauge = (name: string, unit: string, description: string, observe: (r: ObservableResult) => void) =>
		from.createObservableGauge(`countermand.${name}`, { unit, description }).addCallback(observe);

	counter(
		'requests',
		'{request}',
		'Requests of the peer',
		each((tool) => tool.requests),
	);
	gauge(
		'in_flight',
		'{request}',
		'Requests in the table',
		each((tool) => tool.inFlight),
	);
	counter('cancelled', '{request}', 'Cancelled requests, by cause', (result) => {
		for (const tool of stats()?.tools ?? [])
			by('countermand.cause', tool.cancelled, result, attributes(tool));
	});
	counter('cancels', '{cancel}', 'Cancels that the peer sent, by what they hit', (result) => {
		by('countermand.hit', stats()?.cancels ?? {}, result, {});
	});
	gauge(
		'orphans',
		'{request}',
		'Cancelled requests that run on now',
		each((tool) => tool.orphans),
	);
	counter(
		'orphaned',
		'{request}',
		'Cancelled requests that ended as orphans',
		each((tool) => tool.orphaned),
	);
	counter(
		'dropped_answers',
		'{answer}',
		'Answers that were dropped',
		each((tool) => tool.droppedAnswers),
	);
	counter(
		'abandoned_with_effects',
		'{request}',
		'Requests cancelled after they had committed an effect',
		each((tool) => tool.abandonedWithEffects),
	);
	const latency = from.createHistogram('countermand.cancel.latency', {
		unit: 's',
		description: "From the cancel's being read to the handler's exit",
	});
	onCancelled((report) => {
		if (report.latencyMs !== undefined) latency.record(report.latencyMs / 1e3, attributes(report));
	});
}

/** As the semantic conventions for MCP and generative AI name them. */
function attributes({ method, tool }: { method: string; tool?: string | undefined }): Attributes {
	return tool === undefined
		? { 'mcp.method.name': method }
		: { 'mcp.method.name': method, 'gen_ai.tool.name': tool };
}
