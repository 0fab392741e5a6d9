// The content that is shown: one notification, one tray icon, one menu.
import PushToTalkCore

/// The activity that the icon shows.
enum Activity: Hashable, Sendable, CaseIterable {
    /// There is no channel.
    case away
    case idle
    case transmitting
    case receiving
    case connecting
    case unavailable

    /// The icon in the user's theme. All of Adwaita, Breeze, elementary Xfce, MATE and Papirus have these names in colour; where
    /// a theme lacks one, hosts draw `ActivityBadge`.
    var iconName: String {
        switch self {
        case .away: "microphone-sensitivity-muted"
        case .idle: "microphone-sensitivity-high"
        case .transmitting: "media-record"
        case .receiving: "audio-volume-high"
        case .connecting: "view-refresh"
        case .unavailable: "network-offline"
        }
    }
}

/// What a click on Talk does, and so what it is called.
enum TalkAction: Hashable, Sendable {
    case talk
    case stop

    /// What stands on the button.
    var label: String {
        switch self {
        case .talk: "Talk"
        case .stop: "Stop talking"
        }
    }

    /// The button on a notification; it has one meaning at a time, so one key.
    var button: NotificationButton { NotificationButton(key: Self.key, label: label) }
    static let key = "talk"
}

/// A button on a notification.
struct NotificationButton: Hashable, Sendable {
    /// The key that the server reports on a click.
    var key: String
    /// What stands on it.
    var label: String
}

/// The notification, before it is known what the server can show.
struct NotificationView: Hashable, Sendable {
    /// What it is about.
    enum Subject: Hashable, Sendable {
        /// Somebody is speaking.
        case speaking(String)
        /// Somebody has just spoken.
        case spoke(String)
        /// The user could not talk, and why.
        case failure(String)
        /// Something that happened.
        case announcement(String, isUrgent: Bool)
        /// Somebody of this name wants to join the channel.
        case newcomer(String)
    }

    var subject: Subject
    var channelName: String
    /// The participant's picture, or the channel's.
    var image: PTImage?
    /// The buttons on it.
    var buttons: [NotificationButton] = []
    /// How long it may stand if nobody closes it.
    var lifetime: Duration
}

/// The tray icon.
struct TrayView: Hashable, Sendable {
    /// How much attention it wants (StatusNotifierItem's `Status`). Never "Passive": some trays offer no way to a hidden icon, and its menu is
    /// the way to a channel.
    enum Status: String, Sendable {
        case active = "Active"
        /// There is a channel, and nobody on it can be heard.
        case needsAttention = "NeedsAttention"
    }

    var status: Status
    var activity: Activity
    /// The channel's picture.
    var image: PTImage?
    var title: String
    var text: String
}

/// The menu's lines.
struct MenuView: Hashable, Sendable {
    var channelLine: String
    var statusLine: String
    var action: TalkAction
    var canTalk: Bool
    var canLeave: Bool
    var nearby: Nearby

    /// The submenu "Channels nearby".
    struct Nearby: Hashable, Sendable {
        /// A channel.
        struct Line: Hashable, Sendable {
            var number: Int32
            var label: String
            var isEnabled: Bool
            var isLocked: Bool
        }

        /// Its first line, which does nothing.
        var header: String
        var lines: [Line]
    }
}
