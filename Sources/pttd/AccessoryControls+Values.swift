// The values of the module Accessories as those of the bus.
import Accessories
import AccessorySetup
import PTTBus
import Vocabulary

extension AccessoryProperties {
    /// How an accessory is doing, and how it is configured.
    init(
        _ status: AccessoryStatus, origin: AccessoryOrigin, configuration: AccessoryConfiguration?,
        profile: AccessoryProfile?, sound: String?
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
        self.sound = sound ?? ""
        held = status.isHeld
        problem = status.problem ?? ""
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
