// What the device's administrator allows: who may join, and at which hours. Pure.
import PushToTalkCore

/// The administrator's limits on joining, from `[policy]` in pttd.toml.
public struct JoinPolicy: Hashable, Sendable {
    /// A span of every day, in minutes of local time; `from` later than `to` passes over midnight.
    public struct Hours: Hashable, Sendable {
        /// Its first minute, 0…1439.
        public let from: Int
        /// The first minute after it, 1…1440.
        public let to: Int

        /// The span in words such as "08:00-18:00" or "22:00-06:00"; nil for anything else, and for an empty one.
        public init?(_ text: String) {
            let ends = text.split(separator: "-", omittingEmptySubsequences: false).map { Self.minute(String($0)) }
            guard ends.count == 2, let from = ends[0], let to = ends[1], from != to, from < 1_440, to > 0 else {
                return nil
            }
            self.from = from
            self.to = to
        }

        private static func minute(_ text: String) -> Int? {
            let parts = text.split(separator: ":", omittingEmptySubsequences: false)
            guard parts.count == 2,
                parts.allSatisfy({ $0.utf8.count == 2 && $0.allSatisfy { $0.isASCII && $0.isWholeNumber } }),
                let hour = Int(parts[0]), let minute = Int(parts[1]), minute < 60
            else { return nil }
            let result = hour * 60 + minute
            return result <= 1_440 ? result : nil
        }

        func contains(_ minute: Int) -> Bool {
            from < to ? (from..<to).contains(minute) : minute >= from || minute < to
        }
    }

    /// Whether channels other than the configured one may be joined at all.
    public var allowsJoining = true
    /// The names of programs that may join; `*` at the end stands for any rest. Empty: all.
    public var applications: [String] = []
    /// When channels may be joined and stay so. Empty: always.
    public var hours: [Hours] = []

    /// No limits.
    public init() {}

    /// Whether push to talk may be used in this minute of the day.
    public func isOpen(atMinute minute: Int) -> Bool {
        hours.isEmpty || hours.contains { $0.contains(minute) }
    }

    /// How many minutes after this one `isOpen` may be different; nil: never.
    public func minutesUntilChange(atMinute minute: Int) -> Int? {
        hours.flatMap { [$0.from, $0.to] }.map { ($0 - minute + 2_879) % 1_440 + 1 }.min()
    }

    /// Why a channel other than the configured one may not be joined; nil: it may, as far as the hours allow.
    ///
    /// - Parameter application: The name of the program that joins, which may be empty; nil: a user joins.
    public func refusal(application: String?) -> PTChannelError? {
        guard allowsJoining else {
            return PTChannelError(
                .deviceManagementRestriction,
                explanation: "this device stays on its configured channel ([policy] join in pttd.toml)")
        }
        guard let application, !applications.isEmpty, !applications.contains(where: { Self.matches(application, $0) })
        else { return nil }
        let name = application.isEmpty ? "a program without a bus name" : application
        return PTChannelError(
            .deviceManagementRestriction,
            explanation: "\(name) may not join channels on this device ([policy] applications in pttd.toml)")
    }

    static func matches(_ name: String, _ pattern: String) -> Bool {
        guard pattern.hasSuffix("*") else { return name == pattern }
        return name.hasPrefix(pattern.dropLast())
    }
}
