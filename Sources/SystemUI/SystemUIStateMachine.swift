// Decides what the system user interface shows, and what a click in it means. Pure.
import MonotonicTime
import PushToTalkCore

/// From the state of push-to-talk to a notification, a tray icon and a menu; from clicks to what the user wants.
struct SystemUIStateMachine {
    /// What happens.
    enum Event: Sendable {
        case stateChanged(SystemUIState)
        /// A begin was refused, or a transmission was cut: why, in words for the user.
        case failed(String)
        /// An event that is not a state, as text for the user.
        case announced(String, isUrgent: Bool)
        /// A click on Talk or Stop, wherever it is.
        case talkClicked
        case leaveClicked
        /// What there is nearby.
        case nearbyChanged(SystemUINearby)
        /// The submenu of channels nearby is about to be shown, or is.
        case nearbyOpened
        case nearbyClosed
        /// A click on the channel nearby whose line has that number.
        case nearbyClicked(Int32)
        case createClicked
        /// A button of the notification about a newcomer was clicked, `after` it appeared.
        case newcomerClicked(key: String, after: Duration)
        /// The user, or the server's own clock, took that notification away.
        case newcomerGone
        /// The user, or the server's own clock, took the notification away.
        case notificationGone
        /// `nextDeadline` has come.
        case deadline
    }

    /// What is to be done.
    enum Action: Hashable, Sendable {
        /// The notification is this one from now on; nil: none.
        case notification(NotificationView?)
        /// Show this notification about a newcomer; nil: none. It is independent of the other notification.
        case newcomer(NotificationView?)
        case tray(TrayView)
        case menu(MenuView)
        case tell(SystemUIEvent)
    }

    /// How long a notification stays when its speaker is silent: time to see who it was, and to answer.
    static let lingerAfterSpeech = Duration.seconds(4)
    /// How long the reason of a failure can be read.
    static let failureLifetime = Duration.seconds(6)
    /// How long something urgent can be read.
    static let urgentLifetime = Duration.seconds(30)
    /// How long a notification stands when this process is not there any more to close it.
    static let speechLifetime = Duration.seconds(60)
    /// A click within this time after Talk and Stop changed places was meant for what stood there before.
    static let clickGuard = Duration.milliseconds(400)
    /// The shortest time between two changes of the icon, and of the menu.
    static let redrawInterval = Duration.milliseconds(100)

    private var state = SystemUIState()
    private var lastSpeaker: (participant: PTParticipant, until: Instant)?
    private var failure: (text: String, until: Instant)?
    private var announcement: (text: String, isUrgent: Bool, until: Instant)?
    private var isNotificationGone = false
    private var notification: NotificationView?
    private var submenu = NearbySubmenu()
    private var newcomers = NewcomerQuestions()
    private var newcomer: NotificationView?
    /// Whether a search for channels was requested.
    private(set) var isBrowsing = false
    private var tray: Throttle<TrayView>
    private var menu: Throttle<MenuView>
    /// Pressed here and not ended since.
    private var isPressed = false
    /// The transmission was ended here, and continues for its tail.
    private var isReleasing = false
    private var clicksCountFrom: Instant?

    /// Nothing to show.
    init() {
        tray = Throttle(Self.initialTray, interval: Self.redrawInterval)
        menu = Throttle(Self.initialMenu, interval: Self.redrawInterval)
    }

    /// The tray icon and the menu while there is no channel.
    static let initialTray = trayView(of: SystemUIState())
    static let initialMenu = menuView(
        of: SystemUIState(), action: .talk, nearby: NearbySubmenu().view(activeChannel: nil))

    /// When `deadline` must be handled; nil while nothing is pending.
    var nextDeadline: Instant? {
        [
            lastSpeaker?.until, failure?.until, announcement?.until, tray.nextDeadline, menu.nextDeadline,
            submenu.nextDeadline, newcomers.nextDeadline,
        ].compactMap(\.self).min()
    }

    /// Applies an event.
    mutating func handle(_ event: Event, at now: Instant) -> [Action] {
        var actions: [Action] = []
        let shownAction = talkAction
        let isOwnEnd = isReleasing
        switch event {
        case .stateChanged(let new): change(to: new, at: now)
        case .failed(let text): fail(text, at: now)
        case .announced(let text, let isUrgent): announce(text, isUrgent, at: now)
        case .talkClicked: actions += talkClicked(at: now)
        case .leaveClicked: if state.channel != nil { actions.append(.tell(.leave)) }
        case .notificationGone: isNotificationGone = true
        case .nearbyChanged(let nearby):
            submenu.update(nearby, at: now)
            newcomers.update(nearby.newcomers, at: now)
        case .nearbyOpened: submenu.opened(at: now)
        case .nearbyClosed: submenu.closed(at: now)
        case .nearbyClicked(let number): actions += nearbyClicked(number, at: now)
        case .createClicked: actions.append(.tell(.createNearby))
        case .newcomerClicked(let key, let shown):
            if let (id, isAdmitted) = newcomers.clicked(key, after: shown, at: now) {
                actions.append(.tell(.decideNewcomer(id, isAdmitted: isAdmitted)))
            }
        case .newcomerGone: newcomers.dismissed(at: now)
        case .deadline: break
        }
        switch event {
        // Not every tray tells that a menu is closed, and each of these closes it.
        case .talkClicked, .leaveClicked, .nearbyClicked, .createClicked: submenu.closed(at: now)
        default: break
        }
        submenu.pass(to: now)
        newcomers.pass(to: now)
        if submenu.isBrowsing != isBrowsing {
            isBrowsing.toggle()
            actions.append(.tell(.browseNearby(isBrowsing)))
        }
        switch event {
        // Talk and Stop changed places under the user's pointer.
        case .stateChanged, .failed: if talkAction != shownAction, !isOwnEnd { clicksCountFrom = now + Self.clickGuard }
        default: break
        }
        if let until = lastSpeaker?.until, until <= now { lastSpeaker = nil }
        if let until = failure?.until, until <= now { failure = nil }
        if let until = announcement?.until, until <= now { announcement = nil }
        return actions + redraw(at: now)
    }

    // MARK: What is so

    private mutating func change(to new: SystemUIState, at now: Instant) {
        let isOther = new.channel?.identifier != state.channel?.identifier
        // What was so on one channel says nothing about another.
        let old = isOther ? SystemUIState() : state
        state = new
        if new.channel == nil {
            state.speaker = nil
            state.isTransmitting = false
        }
        if isOther {
            lastSpeaker = nil
            failure = nil
            isPressed = false
            isReleasing = false
        }
        if let speaker = state.speaker {
            if speaker != old.speaker {
                lastSpeaker = nil
                failure = nil
                if announcement?.isUrgent == false { announcement = nil }
                // Another voice is news, the same one with its picture is not.
                if speaker.name != old.speaker?.name { isNotificationGone = false }
            }
        } else if let speaker = old.speaker {
            lastSpeaker = (speaker, now + Self.lingerAfterSpeech)
        }
        if state.isTransmitting, !old.isTransmitting {
            failure = nil
            // Answered.
            lastSpeaker = nil
        }
        if !state.isTransmitting, old.isTransmitting { isPressed = false }
        if !state.isTransmitting { isReleasing = false }
    }

    private mutating func fail(_ text: String, at now: Instant) {
        guard state.channel != nil else { return }
        isPressed = false
        isNotificationGone = false
        failure = (text, now + Self.failureLifetime)
    }

    private mutating func announce(_ text: String, _ isUrgent: Bool, at now: Instant) {
        // What is urgent stands until its time is over, or the user has put it away.
        if announcement?.isUrgent == true, !isUrgent, !isNotificationGone { return }
        isNotificationGone = false
        failure = nil
        announcement = (text, isUrgent, now + (isUrgent ? Self.urgentLifetime : Self.failureLifetime))
    }

    // MARK: Clicks

    private var talkAction: TalkAction { state.isTransmitting || isPressed ? .stop : .talk }

    private mutating func talkClicked(at now: Instant) -> [Action] {
        guard state.channel != nil else {
            announce(Self.wayToChannel, false, at: now)
            return []
        }
        // When it cannot be used, the refusal will say why.
        if let clicksCountFrom, now < clicksCountFrom { return [] }
        switch talkAction {
        case .talk:
            isPressed = true
            return [.tell(.talkPressed)]
        case .stop:
            isPressed = false
            isReleasing = state.isTransmitting
            return [.tell(.talkReleased)]
        }
    }

    private mutating func nearbyClicked(_ number: Int32, at now: Instant) -> [Action] {
        switch submenu.clicked(number, activeChannel: state.channel?.identifier, at: now) {
        case nil: return []
        case .join(let id): return [.tell(.joinNearby(id))]
        case .ask(let id, let name, let creator):
            announce("Waiting for approval: \(creator) is asked to let you into \(name)", false, at: now)
            return [.tell(.joinNearby(id))]
        case .locked(let name):
            announce("\(name) is locked: 'pttctl nearby' in a terminal joins it and asks for its code", false, at: now)
            return []
        }
    }

    // MARK: What is shown

    private mutating func redraw(at now: Instant) -> [Action] {
        var actions: [Action] = []
        let wanted = isNotificationGone ? nil : notificationView
        if wanted != notification {
            notification = wanted
            actions.append(.notification(wanted))
        }
        if let view = tray.set(Self.trayView(of: state), at: now) { actions.append(.tray(view)) }
        if newcomers.view != newcomer {
            newcomer = newcomers.view
            actions.append(.newcomer(newcomer))
        }
        let nearby = submenu.view(activeChannel: state.channel?.identifier)
        if let view = menu.set(Self.menuView(of: state, action: talkAction, nearby: nearby), at: now) {
            actions.append(.menu(view))
        }
        return actions
    }

    private var notificationView: NotificationView? {
        if let announcement, failure == nil {
            return NotificationView(
                subject: .announcement(
                    DisplayText.line(announcement.text, fallback: "Push-to-talk"), isUrgent: announcement.isUrgent),
                channelName: state.channel.map(Self.name(of:)) ?? Self.noChannel,
                image: state.channel?.descriptor.image,
                lifetime: announcement.isUrgent ? Self.urgentLifetime : Self.failureLifetime)
        }
        guard let channel = state.channel else { return nil }
        let name = Self.name(of: channel)
        func view(
            _ subject: NotificationView.Subject, _ image: PTImage?, _ action: TalkAction?, _ lifetime: Duration
        ) -> NotificationView {
            NotificationView(
                subject: subject, channelName: name, image: image ?? channel.descriptor.image,
                buttons: action.map { [$0.button] } ?? [], lifetime: lifetime)
        }
        if let failure {
            let text = DisplayText.line(failure.text, fallback: "no reason was given")
            return view(.failure(text), nil, nil, Self.failureLifetime)
        }
        let answer = Self.canTalk(on: channel) ? talkAction : nil
        if let speaker = state.speaker {
            // In half duplex an answer has to wait for the end.
            return view(
                .speaking(Self.name(of: speaker)), speaker.image,
                channel.transmissionMode == .fullDuplex ? answer : nil, Self.speechLifetime)
        }
        if let (speaker, _) = lastSpeaker {
            return view(.spoke(Self.name(of: speaker)), speaker.image, answer, Self.lingerAfterSpeech)
        }
        return nil
    }

    private static func trayView(of state: SystemUIState) -> TrayView {
        guard let channel = state.channel else {
            return TrayView(
                status: .active, activity: .away, image: nil, title: noChannel, text: statusText(of: state))
        }
        return TrayView(
            status: channel.serviceStatus == .unavailable ? .needsAttention : .active, activity: activity(of: state),
            image: channel.descriptor.image, title: name(of: channel), text: statusText(of: state))
    }

    private static func menuView(
        of state: SystemUIState, action: TalkAction, nearby: MenuView.Nearby
    ) -> MenuView {
        MenuView(
            channelLine: state.channel.map(name(of:)) ?? noChannel, statusLine: statusText(of: state), action: action,
            canTalk: action == .stop || state.channel.map(canTalk(on:)) ?? false, canLeave: state.channel != nil,
            nearby: nearby)
    }

    private static func activity(of state: SystemUIState) -> Activity {
        // An open microphone is what must not be overlooked.
        if state.isTransmitting { return .transmitting }
        if state.speaker != nil { return .receiving }
        switch state.channel?.serviceStatus {
        case .unavailable: return .unavailable
        case .connecting: return .connecting
        case .ready: return .idle
        case nil: return .away
        }
    }

    private static func statusText(of state: SystemUIState) -> String {
        guard let channel = state.channel else { return "Join a channel to talk" }
        let detail = DisplayText.line(channel.serviceDetail, fallback: "")
        let reason = detail.isEmpty ? "" : ": \(detail)"
        switch (state.isTransmitting, state.speaker) {
        case (true, let speaker?): return "You and \(name(of: speaker)) are speaking"
        case (true, nil): return "You are speaking"
        case (false, let speaker?): return "\(name(of: speaker)) is speaking"
        case (false, nil): break
        }
        switch channel.serviceStatus {
        case .ready: return channel.transmissionMode == .listenOnly ? "Ready to listen" : "Ready"
        case .connecting: return "Connecting\(reason)"
        case .unavailable: return "Not available\(reason)"
        }
    }

    private static func canTalk(on channel: SystemUIState.Channel) -> Bool {
        channel.serviceStatus == .ready && channel.transmissionMode != .listenOnly
    }

    private static let noChannel = "No channel"
    private static let wayToChannel = "You are not on a channel: right-click the icon to choose a channel nearby"
    private static func name(of channel: SystemUIState.Channel) -> String {
        DisplayText.line(channel.descriptor.name, fallback: "Channel without a name")
    }
    private static func name(of participant: PTParticipant) -> String {
        DisplayText.line(participant.name, fallback: "Somebody")
    }
}
