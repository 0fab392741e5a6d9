// A relay's metrics in the text format of Prometheus (exposition format 0.0.4). Pure.
import MonotonicTime
import RelayProtocol
import RelayServer

/// Metrics as Prometheus scrapes them. Names begin with `pttrelay_`; times are in seconds.
public enum MetricsText {
    /// The media type of the text.
    public static let mediaType = "text/plain; version=0.0.4; charset=utf-8"

    /// The text for one look at a relay.
    ///
    /// - Parameters:
    ///   - version: The program's.
    ///   - cluster: The relay's part in its cluster; nil: it is in none.
    ///   - process: What the program uses of the machine; nil: not known.
    public static func text(
        _ relay: RelayStatistics, version: String, cluster: ClusterFigures? = nil, process: ProcessUse? = nil
    ) -> String {
        var text = MetricsWriter()
        text.gauge("build_info", "The program.", [(["version": version], 1)])
        text.gauge("uptime_seconds", "Since the relay began to listen.", relay.uptime.milliseconds / 1_000)
        text.gauge("draining", "1 while the relay drains before it stops.", relay.isDraining ? 1 : 0)
        text.gauge("connections", "QUIC connections, pending handshakes included.", Double(relay.connections))
        text.gauge("push_tokens", "Live push tokens.", Double(relay.pushTokens))
        channels(relay.channels, &text)
        media(relay, &text)
        if let web = relay.web { links(web, &text) }
        if let cluster { part(in: cluster, &text) }
        transport(relay, &text)
        if let process {
            text.gauge("process_resident_bytes", "Resident memory.", Double(process.residentBytes))
            text.counter(
                "process_cpu_seconds_total", "Processor time, the kernel's included.",
                [([:], process.cpu.milliseconds / 1_000)])
        }
        return text.text
    }

    private static func channels(_ channels: [RelayStatistics.Channel], _ text: inout MetricsWriter) {
        func each(_ value: (RelayStatistics.Channel) -> Int) -> [MetricsWriter.Sample] {
            channels.map { (["channel": $0.name.text], Double(value($0))) }
        }
        text.gauge("members", "Members that are connected.", each(\.members.count))
        text.gauge("talkers", "Members that have the floor.", each { $0.members.count(where: \.isTalking) })
        text.gauge(
            "silent_listeners", "Members that get no media because they do not report.",
            each { $0.members.count(where: \.isSilent) })
        text.gauge("floor_waiting", "Requests that wait for the floor.", each(\.waiting))
        text.counter("floor_grants_total", "Floors granted.", each(\.counters.grants))
        text.counter("floor_queued_total", "Requests that had to wait.", each(\.counters.queued))
        text.counter(
            "floor_denials_total", "Requests refused, by cause.", byCause(channels) { $0.denied($1 as FloorDenyCause) })
        text.counter(
            "floor_revocations_total", "Floors taken back, by cause.",
            byCause(channels) { $0.revoked($1 as FloorRevokeCause) })
        text.counter("bursts_total", "Bursts that ended.", each(\.counters.bursts))
        text.counter("uplink_packets_total", "Packets of these bursts that arrived.", each(\.counters.packets))
        text.counter(
            "uplink_packets_lost_total", "Packets of these bursts that did not arrive, after repair.",
            each(\.counters.packetsLostUp))
        text.counter(
            "listener_packets_total", "Packets that reached listeners, by their reports.",
            each(\.counters.packetsHeard))
        text.counter(
            "listener_packets_lost_total", "Packets lost on the way to listeners, by their reports; before repair.",
            each(\.counters.packetsLostDown))
    }

    /// Only causes that were met: with many channels the others would be most of the text.
    private static func byCause<Cause: CaseIterable>(
        _ channels: [RelayStatistics.Channel], _ count: (RelayChannelCounters, Cause) -> Int
    ) -> [MetricsWriter.Sample] {
        channels.flatMap { channel in
            Cause.allCases.map { (cause: $0, count: count(channel.counters, $0)) }.filter { $0.count != 0 }
                .map { (["channel": channel.name.text, "cause": "\($0.cause)"], Double($0.count)) }
        }
    }

    private static func by(_ label: String, _ counts: [(String, Int)]) -> [MetricsWriter.Sample] {
        counts.map { ([label: $0], Double($1)) }
    }

    private static func media(_ relay: RelayStatistics, _ text: inout MetricsWriter) {
        let counters = relay.counters
        text.counter("media_packets_in_total", "Media packets received.", counters.packetsIn)
        text.counter("media_packets_forwarded_total", "Of these, forwarded; once each.", counters.packetsForwarded)
        text.counter("media_packets_out_total", "Copies handed to the kernel.", counters.packetsOut)
        text.counter(
            "media_packets_not_sent_total", "Copies that the kernel did not take.", counters.packetsNotSent)
        text.counter(
            "media_packets_dropped_total", "Media packets not forwarded, by reason.",
            by("reason", MediaDrop.allCases.map { ("\($0)", counters.dropped($0)) }))
        text.counter(
            "media_packets_repaired_total", "Packets received by repair and forwarded.",
            counters.packetsRepaired)
        text.counter(
            "media_packets_spare_total", "Packets received twice, by themselves and by repair.", counters.packetsSpare)
        text.counter("media_packets_resent_total", "Copies sent again on request.", counters.packetsSentAgain)
        text.counter(
            "repair_requests_total", "Requests for lost packets.",
            by("result", [("answered", counters.repairsAnswered), ("refused", counters.repairsRefused)]))
        text.gauge("kept_bytes", "Memory used by kept bursts.", Double(relay.keptBytes))
        text.counter(
            "media_packets_replayed_total", "Packets of kept bursts sent on request or to late listeners.",
            counters.packetsReplayed)
        text.counter(
            "burst_requests_total", "Requests for kept bursts, and for the list of them.",
            by("result", [("answered", counters.burstsAnswered), ("refused", counters.burstsRefused)]))
        text.counter("listeners_stopped_total", "Listeners that did not report.", counters.listenersStopped)
        text.histogram(
            "forward_seconds",
            "Time from reading a packet, with those received with it, until the kernel has its last copy.",
            relay.forwarding)
    }

    private static func links(_ web: RelayStatistics.Web, _ text: inout MetricsWriter) {
        text.gauge("web_connections", "Links over TLS, pending handshakes included.", Double(web.connections))
        text.counter(
            "web_handshakes_failed_total", "Links over TLS whose client did not prove who it is.",
            web.handshakesFailed)
        text.counter(
            "web_media_too_late_total", "Copies that a link over TLS did not take within half a second; dropped.",
            web.mediaTooLate)
    }

    private static func part(in cluster: ClusterFigures, _ text: inout MetricsWriter) {
        text.gauge(
            "cluster_relays_known", "Relays of the cluster that were heard of within a week, this one included.",
            Double(cluster.relaysKnown))
        text.gauge("cluster_relays", "Of these, relays that serve or begin to.", Double(cluster.relays))
        text.gauge("cluster_shares", "Shares of the channels that this relay serves.", Double(cluster.shares))
        text.gauge(
            "cluster_shares_unserved", "Shares of the channels that no relay of the cluster serves.",
            Double(cluster.unserved))
        text.gauge(
            "cluster_writes_records", "1 while this relay writes the records of the cluster.", cluster.writes ? 1 : 0)
        if let position = cluster.position {
            text.gauge(
                "cluster_log_position", "The last record of the cluster's log that this relay has.", Double(position))
        }
        if let behind = cluster.behind {
            text.gauge(
                "cluster_log_records_behind", "Records of the cluster's log that this relay does not have yet.",
                Double(behind))
        }
        guard let passages = cluster.passages else { return }
        text.gauge(
            "web_passages", "Links over TLS between this relay and others of the cluster that are open, by direction.",
            by("direction", [("to", passages.openTo), ("from", passages.openFrom)]))
        text.counter(
            "web_passages_begun_total", "Links over TLS passed on to other relays, or taken from them.",
            by("direction", [("to", passages.begunTo), ("from", passages.begunFrom)]))
        text.counter(
            "web_passages_failed_total", "Links over TLS to pass on whose relay was not reached.", passages.failedTo)
    }

    private static func transport(_ relay: RelayStatistics, _ text: inout MetricsWriter) {
        let (counters, transport) = (relay.counters, relay.transport)
        text.counter("messages_in_total", "Control messages received.", counters.messagesIn)
        text.counter("protocol_violations_total", "Connections closed for them.", counters.protocolViolations)
        text.counter("joins_refused_total", "Joins refused.", counters.joinsRefused)
        text.counter(
            "joins_sent_on_total", "Clients sent to the relay of the cluster that serves their channel.",
            counters.joinsSentOn)
        text.counter(
            "invitation_requests_total", "Requests of strangers for the invitation to an open channel.",
            by("result", [("given", counters.invitationsGiven), ("refused", counters.invitationsRefused)]))
        text.counter("members_revoked_total", "Members removed.", counters.membersRevoked)
        text.counter("pushes_in_total", "Pushes received.", counters.pushesIn)
        text.counter("pushes_accepted_total", "Pushes accepted.", counters.pushesAccepted)
        text.counter("udp_packets_in_total", "Packets received on the port.", transport.packetsReceived)
        text.counter("udp_packets_malformed_total", "Of these, malformed.", transport.malformedPackets)
        text.counter(
            "udp_packets_stray_total", "Of these, for no connection, of another protocol, or media that came before.",
            transport.strayPackets + counters.strayPackets)
        text.counter("connections_accepted_total", "Connections accepted.", transport.accepted)
        text.counter("handshakes_failed_total", "Handshakes that failed.", transport.handshakesFailed)
        text.counter(
            "connections_refused_total", "Connections refused because a limit was reached.", transport.refusedForLoad)
        text.counter("retries_total", "Clients that had to prove their address by a Retry.", transport.retriesSent)
    }
}

/// Writes families of metrics.
private struct MetricsWriter {
    /// Labels, and the value.
    typealias Sample = ([String: String], Double)

    private(set) var text = ""

    mutating func gauge(_ name: String, _ help: String, _ value: Double) { gauge(name, help, [([:], value)]) }

    mutating func gauge(_ name: String, _ help: String, _ samples: [Sample]) { write(name, "gauge", help, samples) }

    mutating func counter(_ name: String, _ help: String, _ value: Int) { counter(name, help, [([:], Double(value))]) }

    mutating func counter(_ name: String, _ help: String, _ samples: [Sample]) { write(name, "counter", help, samples) }

    private mutating func write(_ name: String, _ type: String, _ help: String, _ samples: [Sample]) {
        family(name, type, help)
        for (labels, value) in samples { line(name, labels, value) }
    }

    mutating func histogram(_ name: String, _ help: String, _ histogram: LatencyHistogram) {
        family(name, "histogram", help)
        var count = 0
        for (bound, inClass) in zip(LatencyHistogram.bounds, histogram.counts) {
            count += inClass
            line("\(name)_bucket", ["le": "\(Double(bound) / 1e6)"], Double(count))
        }
        line("\(name)_bucket", ["le": "+Inf"], Double(histogram.total))
        line("\(name)_sum", [:], Double(histogram.sum) / 1e9)
        line("\(name)_count", [:], Double(histogram.total))
    }

    private mutating func family(_ name: String, _ type: String, _ help: String) {
        text += "# HELP pttrelay_\(name) \(help)\n# TYPE pttrelay_\(name) \(type)\n"
    }

    private mutating func line(_ name: String, _ labels: [String: String], _ value: Double) {
        text += "pttrelay_\(name)"
        if !labels.isEmpty {
            let pairs = labels.sorted { $0.key < $1.key }.map { "\($0.key)=\"\(Self.escaped($0.value))\"" }
            text += "{\(pairs.joined(separator: ","))}"
        }
        // Whole numbers without a fraction, as people read them.
        text += value == value.rounded() && abs(value) < 1e15 ? " \(Int64(value))\n" : " \(value)\n"
    }

    private static func escaped(_ text: String) -> String {
        var result = ""
        for scalar in text.unicodeScalars {
            switch scalar {
            case "\\": result += "\\\\"
            case "\"": result += "\\\""
            case "\n": result += "\\n"
            default: result.unicodeScalars.append(scalar)
            }
        }
        return result
    }
}
