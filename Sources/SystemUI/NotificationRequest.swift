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
        let (headline, category, symbol): (String, String, String)
        var remark: String?
        var isUrgent = false
        switch view.subject {
        case .speaking(let name):
            (headline, category, symbol) = ("\(name) is speaking", "im.received", Activity.receiving.iconName)
        case .spoke(let name):
            (headline, category, symbol) = ("\(name) was speaking", "im.received", Activity.receiving.iconName)
        case .failure(let reason):
            (headline, category, symbol) = ("You cannot talk", "im.error", "dialog-warning")
            remark = reason
        case .announcement(let text, let stays):
            (headline, category, symbol) = (text, "device", stays ? "dialog-warning" : "dialog-information")
            isUrgent = stays
        case .newcomer(let name):
            (headline, category, symbol) = ("\(name) wants to join", "presence", "dialog-question")
            if !capabilities.contains("actions") { remark = "'pttctl nearby admit' or 'pttctl nearby refuse' answers" }
            // Somebody stands and waits.
            isUrgent = true
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
            "urgency": .byte(isUrgent ? 2 : 1), "category": .string(category),
            // Who spoke is of no interest afterwards.
            "transient": .boolean(true),
            // A chime over a voice would hide its first word.
            "suppress-sound": .boolean(true),
        ]
        let showsIcons = capabilities.contains("icon-static") || capabilities.contains("icon-multi")
        icon = showsIcons ? symbol : ""
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
