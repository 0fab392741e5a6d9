// The values of the module Accessories as those of the bus.
import Accessories
import AccessorySetup
import PTTBus

extension AccessoryError {
    /// Why something was not set up.
    init(_ error: AccessorySetupError) {
        let code: Code =
            switch error.kind {
            case .notFound: .notFound
            case .refused: .refused
            case .notRecognised: .notRecognised
            case .pairingFailed: .pairingFailed
            case .notConnected: .notConnected
            case .alreadyConfigured: .alreadyConfigured
            case .busy: .busy
            case .notSaved: .notSaved
            case .invalid: .invalid
            }
        self.init(code, error.description)
    }
}

extension AccessoryProperties {
    /// How an accessory is doing, and how it is configured.
    init(
        _ status: AccessoryStatus, origin: AccessoryOrigin, configuration: AccessoryConfiguration?,
        profile: AccessoryProfile?
    ) {
        self.init()
        id = status.id.text
        name = status.name
        address = status.address
        transport = status.transport?.rawValue ?? ""
        self.profile = status.profileID ?? ""
        profileTitle = status.profileTitle ?? ""
        self.origin = origin.rawValue
        connected = status.isConnected
        ready = status.isReady
        bonded = status.isBonded
        bondedOnly = configuration?.isBondedOnly ?? false
        let talk = profile?.controls.first { status.actions[$0] == .transmit || $0 == .ptt }
        if let talk, let profile {
            gesture = profile.talkGesture(of: talk, wanted: configuration?.gesture).rawValue
        }
        bindings = [:]
        for (control, action) in status.actions { bindings[control.rawValue] = action.text }
        battery = status.battery
        held = status.isHeld
        problem = status.problem ?? ""
    }
}

extension DiscoveredDevice {
    /// What a scan found.
    init(_ device: ScannedDevice) {
        self.init(address: device.address)
        name = device.name ?? ""
        signalStrength = device.signalStrength
        profile = device.profileID
        profileTitle = device.profileTitle
        refusal = device.refusal
        isPaired = device.isPaired
        isConnected = device.isConnected
        accessory = device.accessory?.text
    }
}

extension LearningProperties {
    /// Where learning is.
    init(_ report: LearningReport) {
        self.init()
        step = LearningStep(rawValue: report.progress.step.rawValue) ?? .connecting
        prompt = report.progress.prompt
        round = report.progress.round
        profile = report.profileID ?? ""
        file = report.file ?? ""
        text = report.text ?? ""
        accessory = report.accessory?.text
        problem = report.problem ?? ""
    }
}

extension ProfileDescription {
    /// A profile of the library.
    init(_ profile: AccessoryProfile) {
        self.init(
            id: profile.id, title: profile.title, transport: profile.transport.rawValue,
            confidence: profile.confidence.rawValue, isExperimental: profile.isExperimental, refusal: profile.refusal)
    }
}
