// A notification in the server's form, from the content and the server's capabilities. Pure.
import DBus
import MonotonicTime
import PushToTalkCore

/// The arguments of `org.freedesktop.Notifications.Notify` (Desktop Notifications Specification 1.2).
struct NotificationRequest: Equatable {
    static let applicationName = "Push-to-talk"

    var replacing: UInt32
    var icon: String
    var summary: String
    var body: String
    /// Keys and labels in turn.
    var actions: [String]
    var hints: [String: DBusValue]
    var expiry: Duration

    /// The request for `view`, with what `capabilities` (of `GetCapabilities`) allow.
    init(_ view: NotificationView, capabilities: Set<String>, replacing: UInt32, picture: Picture?) {
        self.replacing = replacing
        expiry = view.lifetime
        let headline: String
        let remark: String?
        switch view.subject {
        case .speaking(let name): (headline, remark) = ("\(name) is speaking", nil)
        case .spoke(let name): (headline, remark) = ("\(name) was speaking", nil)
        case .failure(let reason): (headline, remark) = ("You cannot talk", reason)
        case .announcement(let text, _): (headline, remark) = (text, nil)
        case .newcomer(let name):
            (headline, remark) = (
                "\(name) wants to join",
                capabilities.contains("actions") ? nil : "'pttctl nearby admit' or 'pttctl nearby refuse' answers"
            )
        }
        if capabilities.contains("body") {
            summary = headline
            let text = [view.channelName, remark].compactMap { $0 }.joined(separator: "\n")
            body = capabilities.contains("body-markup") ? DisplayText.escapingMarkup(text) : text
        } else {
            summary = "\(headline) on \(view.channelName)" + (remark.map { ": \($0)" } ?? "")
            body = ""
        }
        actions = capabilities.contains("actions") ? view.buttons.flatMap { [$0.key, $0.label] } : []
        hints = [
            "urgency": .byte(1),
            // Who spoke is of no interest afterwards.
            "transient": .boolean(true),
            // A chime over a voice would hide its first word.
            "suppress-sound": .boolean(true),
        ]
        switch view.subject {
        // Somebody stands and waits.
        case .announcement(_, isUrgent: true), .newcomer: hints["urgency"] = .byte(2)
        case .speaking, .spoke, .failure, .announcement: break
        }
        let showsIcons = capabilities.contains("icon-static") || capabilities.contains("icon-multi")
        switch view.subject {
        case .speaking, .spoke:
            hints["category"] = .string("im.received")
            icon = showsIcons ? Activity.receiving.iconName : ""
        case .failure:
            hints["category"] = .string("im.error")
            icon = showsIcons ? "dialog-warning" : ""
        case .announcement(_, let isUrgent):
            hints["category"] = .string("device")
            icon = showsIcons ? (isUrgent ? "dialog-warning" : "dialog-information") : ""
        case .newcomer:
            hints["category"] = .string("presence")
            icon = showsIcons ? "dialog-question" : ""
        }
        if showsIcons, let picture { hints["image-path"] = .string(picture.uri) }
    }

    /// In the order of the specification.
    var arguments: [DBusValue] {
        [
            .string(Self.applicationName), .uint32(replacing), .string(icon), .string(summary), .string(body),
            .strings(actions), .properties(hints), .int32(Int32(clamping: expiry.nanoseconds / 1_000_000)),
        ]
    }
}
