// What is shown, without saying how: one notification, one tray icon, one menu.
import PushToTalkCore

/// What the machine is doing for its user, as the icon tells it.
enum Activity: Hashable, Sendable, CaseIterable {
    case idle
    case transmitting
    case receiving
    case connecting
    case unavailable

    /// The icon in the user's theme. All of Adwaita, Breeze, elementary Xfce, MATE and Papirus have these names in colour; where
    /// a theme lacks one, hosts draw `ActivityBadge`.
    var iconName: String {
        switch self {
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
    }

    var subject: Subject
    var channelName: String
    /// The participant's picture, or the channel's.
    var image: PTImage?
    /// The button on it; nil: none.
    var action: TalkAction?
    /// How long it may stand if nobody closes it.
    var lifetime: Duration
}

/// The tray icon.
struct TrayView: Hashable, Sendable {
    /// How much attention it wants (StatusNotifierItem's `Status`).
    enum Status: String, Sendable {
        /// There is no channel: a host may hide the icon.
        case passive = "Passive"
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
}
