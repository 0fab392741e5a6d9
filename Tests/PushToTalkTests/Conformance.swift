// The rows of Apple's interface, and the table of the tests that show them.
import Foundation
import Testing

/// Says which rows of `Conformance` a test shows.
struct Shows: TestTrait {
    let rows: [String]
}

extension Trait where Self == Shows {
    /// This test shows these rows of docs/push-to-talk-conformance.md.
    static func shows(_ rows: String...) -> Self { Shows(rows: rows) }
}

/// A symbol or rule of Apple's PushToTalk.
struct ConformanceRow {
    let id: String
    let apple: String
    let here: String

    init(_ id: String, _ apple: String, _ here: String = "the same") {
        self.id = id
        self.apple = apple
        self.here = here
    }
}

enum Conformance {
    /// The rows, by the sections of the table.
    static let sections: [(title: String, rows: [ConformanceRow])] = [
        (
            "Classes",
            [
                .init("manager", "`class PTChannelManager : NSObject`, `Sendable`, no public initializer"),
                .init(
                    "factory",
                    "`channelManager(delegate:restorationDelegate:)`, asynchronous and with a completion handler"),
                .init(
                    "shared",
                    "further calls return the same instance; a call during another one: `instantiationAlreadyInProgress`"
                ),
                .init(
                    "activeChannelUUID", "`activeChannelUUID`: non-nil while the channel is visible",
                    "the same; also nil while `pttd` does not run"),
                .init("requestJoinChannel", "`requestJoinChannel(channelUUID:descriptor:)`"),
                .init("leaveChannel", "`leaveChannel(channelUUID:)`"),
                .init("requestBeginTransmitting", "`requestBeginTransmitting(channelUUID:)`"),
                .init("stopTransmitting", "`stopTransmitting(channelUUID:)`"),
                .init("setChannelDescriptor", "`setChannelDescriptor(_:channelUUID:)`, both forms"),
                .init("setActiveRemoteParticipant", "`setActiveRemoteParticipant(_:channelUUID:)`, both forms"),
                .init(
                    "setServiceStatus",
                    "`setServiceStatus(_:channelUUID:)`, both forms; initially `.ready`; otherwise nobody transmits"),
                .init(
                    "setTransmissionMode", "`setTransmissionMode(_:channelUUID:)`, both forms; initially `.halfDuplex`"),
                .init(
                    "setAccessoryButtonEventsEnabled",
                    "`setAccessoryButtonEventsEnabled(_:channelUUID:)`, both forms (iOS 17)"),
                .init("descriptor", "`PTChannelDescriptor(name:image:)`, `name`, `image`", "`PTImage` for `UIImage`"),
                .init("participant", "`PTParticipant(name:image:)`, `name`, `image`", "`PTImage` for `UIImage`"),
                .init("pushResult", "`PTPushResult.leaveChannel`, `.activeRemoteParticipant(_:)`"),
            ]
        ),
        (
            "Protocols",
            [
                .init(
                    "delegate.required", "`PTChannelManagerDelegate`: eight required methods",
                    "the same, of any class; `PTAudioSession` for `AVAudioSession`"),
                .init("delegate.optional", "four optional failure methods"),
                .init("delegate.serviceUpdate", "`incomingServiceUpdatePush(…)`, optional, both forms (iOS 17.2)"),
                .init("restorationDelegate", "`PTChannelRestorationDelegate.channelDescriptor(restoredChannelUUID:)`"),
            ]
        ),
        (
            "Enumerations",
            [
                .init("PTTransmissionMode", "`PTTransmissionMode`: fullDuplex 0, halfDuplex 1, listenOnly 2"),
                .init("PTServiceStatus", "`PTServiceStatus`: ready 0, connecting 1, unavailable 2"),
                .init("PTChannelJoinReason", "`PTChannelJoinReason`: developerRequest 0, channelRestoration 1"),
                .init(
                    "PTChannelLeaveReason",
                    "`PTChannelLeaveReason`: unknown 0, userRequest 1, developerRequest 2, systemPolicy 3"),
                .init(
                    "PTChannelTransmitRequestSource",
                    "`PTChannelTransmitRequestSource`: unknown 0, userRequest 1, developerRequest 2, handsfreeButton 3"),
            ]
        ),
        (
            "Errors",
            [
                .init("PTInstantiationError", "`PTInstantiationError`: codes 0 to 5, domain, as `NSError`"),
                .init("PTInstantiationError.told", "each of its codes reaches the app"),
                .init("invalidPlatform", "`invalidPlatform`: not available", "no `pttd` runs"),
                .init(
                    "missingEntitlement", "`missingEntitlement`",
                    "the bus does not let the app own its name, or use `pttd`"),
                .init("PTChannelError", "`PTChannelError`: codes 0 to 9, domain, as `NSError`"),
                .init("PTChannelError.told", "each of its codes reaches the app, by callback or by throwing"),
                .init("channelNotFound", "`channelNotFound`: no active channel with this UUID"),
                .init("channelLimitReached", "`channelLimitReached`: one active channel for the device"),
                .init(
                    "callActive", "`callActive`: a call is active", "also a lock of any program, see push-to-talk.md"),
                .init(
                    "transmissionInProgress",
                    "`transmissionInProgress`: setting a participant, or a begin, while transmitting"),
                .init("transmissionNotFound", "`transmissionNotFound`: a stop without a transmission"),
                .init(
                    "transmissionNotAllowed", "`transmissionNotAllowed`: the mode forbids it", "also the service status"
                ),
                .init(
                    "appNotForeground", "`appNotForeground`: joining or beginning in the background",
                    "the same, see push-to-talk.md"),
                .init(
                    "screenTimeRestriction", "`screenTimeRestriction`: the time of day is not permitted",
                    "outside `hours` in `[policy]` of pttd.toml; `ChannelDirectorTests` of `pttdTests` shows it"),
                .init(
                    "deviceManagementRestriction", "`deviceManagementRestriction`: the administrator forbids joining",
                    "`[policy]` of pttd.toml"),
            ]
        ),
        (
            "Order of callbacks",
            [
                .init("order.launch", "launch: `didJoinChannel(.channelRestoration)`, then the instance"),
                .init(
                    "order.restorationDelegate", "the restoration delegate is asked before the channel is restored",
                    "only if the stored record has no name"),
                .init(
                    "order.join", "join: `didJoinChannel(.developerRequest)` and `receivedEphemeralPushToken`",
                    "in this order"),
                .init("order.transmit", "`didBeginTransmitting`, `didActivate`, `didEndTransmitting`, `didDeactivate`"),
                .init("order.userTransmits", "the user's talk button: the same, with `.userRequest`"),
                .init("order.receive", "push, `incomingPushResult`, `didActivate`, participant nil, `didDeactivate`"),
                .init("order.collision", "stop in the answer to a push: both in one step, the session stays active"),
                .init("order.fullDuplex", "full duplex: a transmission while receiving has no second `didActivate`"),
                .init(
                    "order.hangUp", "`.leaveChannel` as a push's result leaves the channel",
                    "reason `.developerRequest`"),
                .init("order.call", "a call ends the transmission and interrupts the session"),
                .init("order.userLeaves", "the user leaves: `didLeaveChannel(.userRequest)`"),
                .init(
                    "order.restart", "the system restarts during a transmission",
                    "its end is reported, then `didJoinChannel(.channelRestoration)`"),
                .init("order.any", "any sequence of events keeps the order of callbacks"),
            ]
        ),
        (
            "Pushes",
            [
                .init("push.token", "a token for each join, of variable length, invalid after leaving"),
                .init("push.payload", "the payload's own keys reach the app"),
                .init(
                    "push.report",
                    "`NEAppPushProvider.reportPushToTalkMessage(userInfo:)`: the same `incomingPushResult`",
                    "`reportPushToTalkMessage(userInfo:channelUUID:)`"),
                .init("push.serviceUpdate", "`aps.ptt-push-type: service-update`: no speaker; the budget is passed"),
                .init("push.starts", "a push starts the app", "by its D-Bus name"),
            ]
        ),
        (
            "Audio session",
            [
                .init(
                    "session", "interruptions and route changes",
                    "asynchronous sequences of `PTAudioSession`; `pttd` changes the route only between activations"),
                .init("session.notFirst", "nothing is active before `didActivate`, nor after `didDeactivate`"),
            ]
        ),
    ]

    /// The tests by the rows they show, read from the sources.
    static func tests() throws -> [String: [String]] {
        var result: [String: [String]] = [:]
        let directory = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
        for file in try FileManager.default.contentsOfDirectory(atPath: directory.path).sorted() {
            guard file.hasSuffix("Tests.swift") else { continue }
            let suite = file.dropLast(".swift".count)
            var rows: [String] = []
            var isInRows = false
            let source = try String(contentsOf: directory.appendingPathComponent(file), encoding: .utf8)
            for line in source.components(separatedBy: "\n") {
                var listed = isInRows ? line[...] : ""
                if let range = line.range(of: ".shows(") {
                    listed = line[range.upperBound...]
                    isInRows = true
                }
                if isInRows {
                    let end = listed.firstIndex(of: ")")
                    isInRows = end == nil
                    rows += listed[..<(end ?? listed.endIndex)].components(separatedBy: "\"").enumerated()
                        .filter { $0.offset % 2 == 1 }.map(\.element)
                }
                guard let range = line.range(of: "func "), !rows.isEmpty else { continue }
                let name = line[range.upperBound...].prefix { $0 != "(" }
                for row in rows { result[row, default: []].append("\(suite).\(name)") }
                rows = []
            }
        }
        return result
    }

    static func table() throws -> String {
        let tests = try tests()
        var lines = [
            "# Conformance to Apple's PushToTalk", "",
            "Each row has a symbol or a rule of Apple's framework (iOS 16.0 to 17.2; later SDKs add none), what",
            "`pttd` does, and the tests in `Tests/PushToTalkTests` that show it. The tests in `RealDaemonTests` run against",
            "the real `pttd`.",
            "", "The tests write this page: `PTTD_WRITE_CONFORMANCE=1 swift test --filter ConformanceTests`.",
        ]
        for section in sections {
            lines += ["", "## \(section.title)", "", "| Apple | `pttd` | shown by |", "|---|---|---|"]
            for row in section.rows {
                let shown = (tests[row.id] ?? []).map { "`\($0)`" }.joined(separator: ", ")
                lines.append("| \(row.apple) | \(row.here) | \(shown) |")
            }
        }
        return lines.joined(separator: "\n") + "\n"
    }
}
